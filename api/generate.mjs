/**
 * Generates the TypeScript classes of notification.fbs into api/intent/generated/ with flatc.
 *
 *   node api/generate.mjs           regenerates in place
 *   node api/generate.mjs --check   regenerates into a temporary folder and compares, changing nothing; and asks flatc
 *                                   whether the schema can still be read by everybody who knows a committed version
 *
 * Exit code 1 on any difference or breaking change. `--check` passes with a note where flatc is missing, because only
 * those who change the schema need it; the generated code is committed.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Debian's. Other versions write other code, so a comparison with theirs would say nothing. */
const FLATC_VERSION = '2.0.8';

const API = join(import.meta.dirname, 'intent');
const SCHEMA = join(API, 'notification.fbs');
/** Where the schema lies in git, and where it lay. */
const SCHEMAS_IN_GIT = ['api/intent/notification.fbs', 'api/notification.fbs'];
const GENERATED = join(API, 'generated');
const GENERATED_FILE = 'notification_generated.ts';

function installedFlatc() {
  const { stdout } = spawnSync('flatc', ['--version'], { encoding: 'utf8' });
  return stdout?.trim().replace('flatc version ', '');
}

/** One flat file, because the one-file-per-table layout imports without the suffix that Node's loader wants. */
function generateInto(folder) {
  execFileSync('flatc', ['--ts', '--ts-flat-files', '-o', folder, SCHEMA], { stdio: 'inherit' });
}

/** Every committed version of the schema, newest first; none outside a repository or before the first commit. */
function committedSchemas() {
  const git = (...args) => spawnSync('git', ['-C', API, ...args], { encoding: 'utf8' }).stdout ?? '';
  return SCHEMAS_IN_GIT.flatMap((file) => {
    const commits = git('log', '--format=%H', '--diff-filter=AM', '--', `:/${file}`)
      .split('\n')
      .filter(Boolean);
    return commits.map((commit) => ({ commit, text: git('show', `${commit}:${file}`) }));
  });
}

/** `Table` and `Table.field` for everything a schema declares. */
function declarationsOf(schema) {
  return [...schema.matchAll(/^table (\w+) \{(.*?)^\}/gms)].flatMap(([, table, body]) => [
    table,
    ...[...body.matchAll(/^\s*(\w+):/gm)].map(([, field]) => `${table}.${field}`),
  ]);
}

/**
 * Against all versions, not only the last: clients in the field know any of them. `--conform` compares what it finds in
 * both schemas and does not miss what has gone, so that is looked at here.
 */
function breakingChanges(scratch) {
  const declared = new Set(declarationsOf(readFileSync(SCHEMA, 'utf8')));
  return committedSchemas().flatMap(({ commit, text }) => {
    const before = join(scratch, `${commit}.fbs`);
    writeFileSync(before, text);
    const { status, stdout, stderr } = spawnSync('flatc', ['--conform', before, SCHEMA], {
      encoding: 'utf8',
    });
    const gone = declarationsOf(text).filter((declaration) => !declared.has(declaration));
    return [
      ...(status === 0 ? [] : [`not readable with the schema of ${commit}: ${(stderr || stdout).trim()}`]),
      ...gone.map((declaration) => `${declaration} of ${commit} is gone`),
    ];
  });
}

function differences(scratch) {
  generateInto(scratch);
  const [fresh, committed] = [scratch, GENERATED].map((folder) => {
    try {
      return readFileSync(join(folder, GENERATED_FILE), 'utf8');
    } catch {
      return undefined;
    }
  });
  return fresh === committed ? [] : [`generated/${GENERATED_FILE} is out of date: run node api/generate.mjs`];
}

function check(version) {
  if (version === undefined) {
    console.log('flatc is not installed: generated code not compared');
    return [];
  }
  const scratch = mkdtempSync(join(tmpdir(), 'notification-fbs-'));
  try {
    if (version === FLATC_VERSION) return [...breakingChanges(scratch), ...differences(scratch)];
    console.log(`flatc is ${version}, not ${FLATC_VERSION}: generated code not compared`);
    return breakingChanges(scratch);
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

function regenerate(version) {
  if (version !== FLATC_VERSION) return [`needs flatc ${FLATC_VERSION}, found ${version ?? 'none'}`];
  generateInto(GENERATED);
  return [];
}

const problems = (process.argv.includes('--check') ? check : regenerate)(installedFlatc());
for (const problem of problems) console.error(problem);
process.exitCode = problems.length === 0 ? 0 : 1;

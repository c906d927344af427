/**
 * The classes of notification.fbs in Go, made by flatc, for consumers of push events.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** Debian's. Other versions write other code, so a comparison with theirs would say nothing. */
export const FLATC_VERSION = '2.0.8';

const API = dirname(import.meta.dirname);
const SCHEMA = join(API, 'notification.fbs');
/** Where the schema lies in git, and where it lay. */
const SCHEMAS_IN_GIT = ['api/intent/notification.fbs', 'api/notification.fbs'];
/** What flatc writes, and where it is committed. Go's package has the name of the schema's namespace. */
const OUTPUTS = [{ options: ['--go'], folder: join(API, '../../clients/go/notification'), parent: true }];

export function installedFlatc() {
  const { stdout } = spawnSync('flatc', ['--version'], { encoding: 'utf8' });
  return stdout?.trim().replace('flatc version ', '');
}

/** @returns the text of each file that flatc writes, by name. */
function generate(scratch, { options, parent }) {
  const folder = mkdtempSync(join(scratch, 'out-'));
  execFileSync('flatc', [...options, '-o', folder, SCHEMA], { stdio: 'inherit' });
  return textsIn(parent ? join(folder, 'notification') : folder);
}

function textsIn(folder) {
  try {
    const names = readdirSync(folder);
    return new Map(names.map((name) => [name, readFileSync(join(folder, name), 'utf8')]));
  } catch {
    return new Map();
  }
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
  return OUTPUTS.flatMap((output) => {
    const [fresh, committed] = [generate(scratch, output), textsIn(output.folder)];
    const names = new Set([...fresh.keys(), ...committed.keys()]);
    return [...names]
      .filter((name) => fresh.get(name) !== committed.get(name))
      .map((name) => `${join(output.folder, name)} is out of date: npm run generate`);
  });
}

function withScratch(work) {
  const scratch = mkdtempSync(join(tmpdir(), 'notification-fbs-'));
  try {
    return work(scratch);
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/**
 * Compares what is committed with what flatc would write, and asks flatc whether the schema can still be read by everybody
 * who knows a committed version. Where flatc is missing nothing is compared, because only those who change the schema
 * need it.
 *
 * @returns what is wrong, a line each.
 */
export function checkFlatBuffers() {
  const version = installedFlatc();
  if (version === undefined) {
    console.log('flatc is not installed: its code not compared');
    return [];
  }
  return withScratch((scratch) => {
    if (version === FLATC_VERSION) return [...breakingChanges(scratch), ...differences(scratch)];
    console.log(`flatc is ${version}, not ${FLATC_VERSION}: its code not compared`);
    return breakingChanges(scratch);
  });
}

/** Writes the files. @returns why it cannot, in a line. */
export function generateFlatBuffers() {
  const version = installedFlatc();
  if (version !== FLATC_VERSION) {
    return [`the classes of notification.fbs need flatc ${FLATC_VERSION}, found ${version ?? 'none'}`];
  }
  return withScratch((scratch) => {
    for (const output of OUTPUTS) {
      rmSync(output.folder, { recursive: true, force: true });
      mkdirSync(output.folder, { recursive: true });
      for (const [name, text] of generate(scratch, output)) writeFileSync(join(output.folder, name), text);
    }
    return [];
  });
}

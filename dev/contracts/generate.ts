/**
 * Generates what follows from catalog/galaxy.yaml: notification.fbs with its classes in Go, the vectors, and
 * the clients in TypeScript, Go and Python.
 *
 *   node dev/contracts/generate.ts           writes them
 *   node dev/contracts/generate.ts --check   compares, and changes nothing
 *
 * Exit code 1 on any difference, and when the FlatBuffers schema breaks a consumer that knows an older one.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { derivedFiles } from './derived-files.ts';

/** Debian's. Another version writes other code, which a comparison would refuse. */
const FLATC_VERSION = '2.0.8';

const ROOT = path.join(import.meta.dirname, '../..');
const SCHEMA = path.join(ROOT, 'api/intent/notification.fbs');
/** Where the schema lies in git, and where it lay. */
const SCHEMAS_IN_GIT = ['api/intent/notification.fbs', 'api/notification.fbs'];
/** What flatc writes, for consumers of push events. The package has the name of the schema's namespace. */
const GO_CLASSES = path.join(ROOT, 'clients/go/notification');

type Texts = ReadonlyMap<string, string>;

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

function textsIn(folder: string): Texts {
  try {
    return new Map(readdirSync(folder).map((name) => [name, readFileSync(path.join(folder, name), 'utf8')]));
  } catch {
    return new Map();
  }
}

function write(files: Iterable<readonly [file: string, text: string]>): void {
  for (const [file, text] of files) {
    mkdirSync(path.dirname(path.join(ROOT, file)), { recursive: true });
    writeFileSync(path.join(ROOT, file), text);
  }
}

/** @returns the text of each file that flatc writes, by its path in the repository. */
function goClasses(scratch: string): Texts {
  execFileSync('flatc', ['--go', '-o', scratch, SCHEMA], { stdio: 'inherit' });
  return inFolder(textsIn(path.join(scratch, 'notification')));
}

const inFolder = (texts: Texts): Texts =>
  new Map([...texts].map(([name, text]) => [path.relative(ROOT, path.join(GO_CLASSES, name)), text]));

/** Every committed version of the schema, newest first; none outside a repository or before the first commit. */
function committedSchemas(): { commit: string; text: string }[] {
  const git = (...args: string[]) =>
    spawnSync('git', ['-C', ROOT, ...args], { encoding: 'utf8' }).stdout ?? '';
  return SCHEMAS_IN_GIT.flatMap((file) => {
    const commits = git('log', '--format=%H', '--diff-filter=AM', '--', `:/${file}`)
      .split('\n')
      .filter(Boolean);
    return commits.map((commit) => ({ commit, text: git('show', `${commit}:${file}`) }));
  });
}

/** `Table` and `Table.field` for each declaration of a schema. */
function declarationsOf(schema: string): string[] {
  return [...schema.matchAll(/^table (\w+) \{(.*?)^\}/gms)].flatMap(([, table, body]) => [
    table!,
    ...[...body!.matchAll(/^\s*(\w+):/gm)].map(([, field]) => `${table}.${field}`),
  ]);
}

/**
 * Against all versions, not only the last: clients in the field know any of them. `--conform` compares what both schemas
 * declare and does not miss a removed declaration, so this function looks for those.
 */
function breakingChanges(scratch: string): string[] {
  const declared = new Set(declarationsOf(readFileSync(SCHEMA, 'utf8')));
  return committedSchemas().flatMap(({ commit, text }) => {
    const before = path.join(scratch, `${commit}.fbs`);
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

/** @returns the committed files that a new run would write otherwise, a line each. */
const outOfDate = (files: Texts, committed: Texts): string[] =>
  [...new Set([...files.keys(), ...committed.keys()])]
    .filter((file) => files.get(file) !== (committed.get(file) ?? textOf(path.join(ROOT, file))))
    .map((file) => `${file} is out of date: npm run generate`);

/** Only who changes the schema needs flatc: without it, this function checks the other files alone. */
function check(version: string | undefined, scratch: string): string[] {
  const problems = outOfDate(new Map(derivedFiles()), new Map());
  if (version !== FLATC_VERSION) {
    console.log(`flatc is ${version ?? 'not installed'}, not ${FLATC_VERSION}: its code not compared`);
    return version === undefined ? problems : [...problems, ...breakingChanges(scratch)];
  }
  return [
    ...problems,
    ...breakingChanges(scratch),
    ...outOfDate(goClasses(scratch), inFolder(textsIn(GO_CLASSES))),
  ];
}

function generate(version: string | undefined, scratch: string): string[] {
  write(derivedFiles());
  if (version !== FLATC_VERSION)
    return [`the classes of notification.fbs need flatc ${FLATC_VERSION}, found ${version ?? 'none'}`];
  const classes = goClasses(scratch);
  rmSync(GO_CLASSES, { recursive: true, force: true });
  write(classes);
  return [];
}

const version = spawnSync('flatc', ['--version'], { encoding: 'utf8' })
  .stdout?.trim()
  .replace('flatc version ', '');
const scratch = mkdtempSync(path.join(tmpdir(), 'notification-fbs-'));
try {
  const problems = process.argv.includes('--check') ? check(version, scratch) : generate(version, scratch);
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length === 0 ? 0 : 1;
} finally {
  rmSync(scratch, { recursive: true });
}

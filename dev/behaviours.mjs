/** Fails when a behavior of test/BEHAVIOURS.md has no test, or the title of a test names an unknown behavior. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const ROOT = path.dirname(import.meta.dirname);
const read = (file) => readFileSync(path.join(ROOT, file), 'utf8');

/** Behaviour ids at the beginning of a text: a test's title. */
const TITLE = /(?<=['"`])(?:[A-Z]\d+ )+(?=\S)/g;
const ROW = /^\| ([A-Z]\d+) \| (.+) \|$/gm;

const behaviors = new Map(
  [...read('test/BEHAVIOURS.md').matchAll(ROW)].map(([, id, behavior]) => [id, behavior]),
);
const named = globSync('test/**/*.test.ts', { cwd: ROOT }).flatMap((file) =>
  [...read(file).matchAll(TITLE)].flatMap(([ids]) =>
    ids
      .trim()
      .split(' ')
      .map((id) => ({ id, file })),
  ),
);
const proven = new Set(named.map(({ id }) => id));

const problems = [
  ...[...behaviors]
    .filter(([id]) => !proven.has(id))
    .map(([id, behavior]) => `${id} has no test: ${behavior}`),
  ...named
    .filter(({ id }) => !behaviors.has(id))
    .map(({ id, file }) => `${file} names ${id}, which is not listed`),
];
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
else console.log(`${behaviors.size} behaviors, each with a test`);

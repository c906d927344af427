/** Fails when a behaviour of test/BEHAVIOURS.md has no test, or the title of a test names an unknown behaviour. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const ROOT = path.dirname(import.meta.dirname);
const read = (file) => readFileSync(path.join(ROOT, file), 'utf8');

/** Behaviour ids at the beginning of a text: a test's title. */
const TITLE = /(?<=['"`])(?:[A-Z]\d+ )+(?=\S)/g;
const ROW = /^\| ([A-Z]\d+) \| (.+) \|$/gm;

const behaviours = new Map(
  [...read('test/BEHAVIOURS.md').matchAll(ROW)].map(([, id, behaviour]) => [id, behaviour]),
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
  ...[...behaviours]
    .filter(([id]) => !proven.has(id))
    .map(([id, behaviour]) => `${id} has no test: ${behaviour}`),
  ...named
    .filter(({ id }) => !behaviours.has(id))
    .map(({ id, file }) => `${file} names ${id}, which is not listed`),
];
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
else console.log(`${behaviours.size} behaviours, each with a test`);

/**
 * The table of behaviours in CONTRIBUTING.md, held against the titles of the tests: `npm run behaviours` writes which
 * test files prove what, `-- --check` fails when a behaviour has no test, a title names an unknown behaviour, or the
 * table is not up to date.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { format } from 'prettier';

const ROOT = path.dirname(import.meta.dirname);
const PAGE = path.join(ROOT, 'CONTRIBUTING.md');
const TESTS = path.join(ROOT, 'test');
const [BEGIN, END] = ['<!-- behaviours -->', '<!-- /behaviours -->'];

/** Behaviour ids at the beginning of a text: a test's title. */
const TITLE = /(?<=['"`])(?:[A-Z]\d+ )+(?=\S)/g;

/** @returns {Map<string, Set<string>>} the files that have tests of a behaviour, by its id. */
function provenIn() {
  const proofs = new Map();
  for (const file of readdirSync(TESTS).filter((name) => name.endsWith('.test.ts'))) {
    const source = readFileSync(path.join(TESTS, file), 'utf8');
    for (const [ids] of source.matchAll(TITLE)) {
      for (const id of ids.trim().split(' ')) proofs.set(id, (proofs.get(id) ?? new Set()).add(file));
    }
  }
  return proofs;
}

/** @returns {{id: string, behaviour: string}[]} */
function listed(table) {
  return [...table.matchAll(/^\| ([A-Z]\d+) +\| (.*?) +\|/gm)].map(([, id, behaviour]) => ({
    id,
    behaviour,
  }));
}

const page = readFileSync(PAGE, 'utf8');
const [start, end] = [page.indexOf(BEGIN) + BEGIN.length, page.indexOf(END)];
const behaviours = listed(page.slice(start, end));
const proofs = provenIn();

const known = new Set(behaviours.map(({ id }) => id));
const problems = [
  ...behaviours
    .filter(({ id }) => !proofs.has(id))
    .map(({ id, behaviour }) => `${id} has no test: ${behaviour}`),
  ...[...proofs]
    .filter(([id]) => !known.has(id))
    .map(([id, files]) => `${[...files]} name ${id}, which is not listed`),
];

const rows = behaviours.map(({ id, behaviour }) => {
  const files = [...(proofs.get(id) ?? [])].sort().map((file) => `\`${file.replace('.test.ts', '')}\``);
  return `| ${id} | ${behaviour} | ${files.join(', ')} |`;
});
const table = ['| id | behaviour | tests |', '| --- | --- | --- |', ...rows].join('\n');
const updated = await format(`${page.slice(0, start)}\n\n${table}\n\n${page.slice(end)}`, {
  parser: 'markdown',
  ...JSON.parse(readFileSync(path.join(ROOT, '.prettierrc.json'), 'utf8')),
});

if (process.argv.includes('--check')) {
  if (updated !== page) problems.push('the table in CONTRIBUTING.md is not up to date: npm run behaviours');
} else {
  writeFileSync(PAGE, updated);
}
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
else console.log(`${behaviours.length} behaviours, each with a test`);

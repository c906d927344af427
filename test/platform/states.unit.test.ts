/** deploy/STATES.md has a line for every state that the schema knows, with a way out and a test of it. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

/** Columns that say what a row is about, and never change. */
const FACTS = new Set(['is_only_row', 'offers_restart']);

interface Line {
  state: string;
  byItself: string;
  byHand: string;
  tests: string[];
}

function linesOfPage(): Line[] {
  return [
    ...read('deploy/STATES.md').matchAll(/^\| (`[^|]*) +\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$/gm),
  ].map(([, state, , byItself, byHand, tests]) => ({
    state: state!.replaceAll('`', '').trim(),
    byItself: byItself!.trim(),
    byHand: byHand!.trim(),
    tests: tests!.trim().split(' '),
  }));
}

/** The description of the schema that the test of the migrations holds against PostgreSQL. */
function statesOfSchema(): { states: string[]; tables: Set<string> } {
  const description = read('test/platform/__snapshots__/migrations.service.test.ts.snap');
  const [columns, constraints] = description.split('\n\n').slice(-3) as [string, string];
  const tables = new Set<string>();
  const states: string[] = [];
  for (const [, table, column, type] of columns.matchAll(/^([a-z_]+)\.([a-z_]+) (.*)/gm)) {
    tables.add(table!);
    const isState = type!.startsWith('boolean') || column!.endsWith('_since');
    if (isState && !FACTS.has(column!)) states.push(`${table}.${column}`);
  }
  for (const line of constraints.split('\n')) {
    const [, owner, of, given] =
      /^(?:\w+\.)?([a-z_]+) \w+_check CHECK \(\((status|action|\w+_action) (.*)\)\)$/.exec(line) ?? [];
    if (owner === undefined) continue;
    const values = given!.startsWith('~')
      ? /\((.*)\)/
          .exec(given!)![1]!
          .split('|')
          .map((value) => value.replace('.+', '…'))
      : [...given!.matchAll(/'([^']*)'/g)].map(([, value]) => value!);
    states.push(...values.map((value) => `${owner}.${of} ${value}`));
  }
  return { states, tables };
}

const page = linesOfPage();
const schema = statesOfSchema();

test('the schema has states', () => {
  expect(schema.states).toEqual(
    expect.arrayContaining([
      'routes.status dead_letter',
      'ntf_tokens.status INVALID,BAD',
      'ntf_subscriptions.status CREATED …',
      'ntf_subscriptions.smp_action D',
      'holds.is_paused',
      'symbol_targets.failing_since',
    ]),
  );
});

test('every state of a row has a line, and no line is about another', () => {
  const named = page.map(({ state }) => state);
  expect(named.filter((state, index) => named.indexOf(state) !== index)).toEqual([]);
  expect(schema.states.filter((state) => !named.includes(state))).toEqual([]);
  const known = new Set([...schema.states, ...schema.tables]);
  expect(named.filter((state) => !known.has(state))).toEqual([]);
});

test('every table has a line', () => {
  const named = new Set(page.map(({ state }) => state.split('.')[0]!));
  expect([...schema.tables].filter((table) => !named.has(table))).toEqual([]);
});

test('every state has a way out, and tests that are there', () => {
  const titles = globSync('test/**/*.test.ts', { cwd: ROOT })
    .flatMap((file) => [...read(file).matchAll(/(?:test|describe)(?:\.\w+)?\([\s\S]{0,40}?['"`](.*)/g)])
    .map(([, title]) => title!);
  const isTested = (id: string) => titles.some((title) => title.split(' ').includes(id));
  for (const { state, byItself, byHand, tests } of page) {
    expect([state, byItself === '', byHand === '']).toEqual([state, false, false]);
    // What never ends by itself needs a command, or an order to a workflow.
    if (byItself.startsWith('never')) expect(byHand).toMatch(/galaxy-notify|signal|update/);
    expect([state, tests.filter((id) => !isTested(id))]).toEqual([state, []]);
  }
});

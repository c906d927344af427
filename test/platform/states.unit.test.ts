/** dev/states.ts has a line for every state of the schema, with a way out and its tests. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { commandsBelow, pathOf } from '../../cli/definition.ts';
import { programOf } from '../../cli/program.ts';
import { STATES } from '../../dev/states.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

/** Columns that say what a row is about, and never change. */
const FACTS = new Set(['is_only_row', 'offers_restart']);

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

const schema = statesOfSchema();

test('every table and every state of a row has a line, and no line is about another', () => {
  const named = STATES.map(({ row }) => row);
  expect(named.filter((state, index) => named.indexOf(state) !== index)).toEqual([]);
  expect(schema.states.filter((state) => !named.includes(state))).toEqual([]);
  const known = new Set([...schema.states, ...schema.tables]);
  expect(named.filter((state) => !known.has(state))).toEqual([]);
  const tables = named.map((row) => row.split(/[. ]/)[0]!);
  expect([...schema.tables].filter((table) => !tables.includes(table))).toEqual([]);
});

/** In the call of a test, or behind the table of its cases. */
const TITLE = /(?:(?:test|describe)(?:\.\w+)?\([\s\S]{0,40}?|\](?: as const)?\)\(\s*)['"`](.*)/g;

test('every state has a way out, and tests that exist', async () => {
  const commands = new Set(commandsBelow(programOf()).map(pathOf));
  const titles = globSync('test/**/*.test.ts', { cwd: ROOT })
    .flatMap((file) => [...read(file).matchAll(TITLE)])
    .map(([, title]) => title!);
  const isTested = (id: string) => titles.some((title) => title.split(' ').includes(id));
  for (const { row, meaning, end, command, tests } of STATES) {
    expect([row, meaning === '', end === '']).toEqual([row, false, false]);
    const isOrder = /^(signal|update) \w+$/.test(command);
    const unknown = command === '-' || isOrder ? [] : command.split(', ').filter((one) => !commands.has(one));
    expect([row, unknown]).toEqual([row, []]);
    // A state that never ends by itself needs a command, a signal or an update.
    if (end.startsWith('never')) expect([row, command]).not.toEqual([row, '-']);
    expect([row, tests.filter((id) => !isTested(id))]).toEqual([row, []]);
  }
});

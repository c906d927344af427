/**
 * Pages keep their budgets, and what they name exists: files, headings, npm scripts, commands with their options. dev/states.ts, from
 * which the page of states is made, has a line for every state of the schema, with a way out and its tests.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { DEAD_LETTER_RUNBOOK } from '../../workflows/intent/contract.ts';
import { commandsBelow, pathOf } from '../../cli/definition.ts';
import { programOf } from '../../cli/program.ts';
import { STATES } from '../../dev/states.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const listed = (...patterns: string[]): string[] =>
  spawnSync('git', ['ls-files', ...patterns], { cwd: ROOT, encoding: 'utf8' })
    .stdout.split('\n')
    .filter(Boolean);

const KINDS = ['intent', 'mobile-push', 'symbol-config', 'account-callback', 'subscription'];
const FILES = listed();
/** The history of the project names what is gone. */
const PAGES = listed('*.md').filter((file) => file !== 'CHANGELOG.md');
const textOf = (page: string): string => readFileSync(path.join(ROOT, page), 'utf8');

const FENCES = /^ *```(\w*)\n([\s\S]*?)^ *```$/gm;
const fencesOf = (text: string) =>
  [...text.matchAll(FENCES)].map(([, language, code]) => ({ language, code: code! }));
const withoutFences = (text: string): string => text.replace(FENCES, '');
const inlineCodeOf = (text: string): string[] =>
  [...withoutFences(text).matchAll(/`([^`]+)`/g)].map(([, code]) => code!);

/** Pairs of a page and what it says that is not so. */
const wrongIn = (find: (text: string, page: string) => string[]): string[] =>
  PAGES.flatMap((page) => [...new Set(find(textOf(page), page))].map((wrong) => `${page}: ${wrong}`));

/** Bytes that a page may have, in units of 1,024. Every other page: 8. */
const BUDGETS: Record<string, number> = {
  'README.md': 6,
  'CHANGELOG.md': 4,
  'bench/README.md': 5,
  'docs/operate/runbook.md': 27,
  'docs/reference/contracts.md': 3,
  'docs/reference/states.md': 9,
  'docs/reference/variables.md': 14,
  'test/BEHAVIOURS.md': 12,
};

test('each page keeps its budget, and all take at most 250 KB together', () => {
  const pages = listed('*.md').map((page) => ({ page, size: Buffer.byteLength(textOf(page)) }));
  expect(pages.filter(({ page, size }) => size > (BUDGETS[page] ?? 8) * 1024)).toEqual([]);
  expect(Object.keys(BUDGETS).filter((page) => !FILES.includes(page))).toEqual([]);
  expect(pages.reduce((sum, { size }) => sum + size, 0)).toBeLessThanOrEqual(250 * 1024);
});

const slugsOf = (page: string) =>
  [...withoutFences(textOf(page)).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );

test('links between pages lead to a file, and to one of its headings', () => {
  const dead = wrongIn((text, page) =>
    [...withoutFences(text).matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, target = '']) => {
      if (/^[a-z]+:/.test(target)) return [];
      const [file = '', heading] = target.split('#');
      const linked = path.join(file === '' ? '.' : path.dirname(page), file === '' ? page : file);
      if (!existsSync(path.join(ROOT, linked))) return [target];
      return heading === undefined || slugsOf(linked).includes(heading) ? [] : [target];
    }),
  );

  expect(dead).toEqual([]);
});

test('I22 the link of dead letters leads to a heading of the runbook', () => {
  const [page, heading] = DEAD_LETTER_RUNBOOK.split('#');
  expect(page).toMatch(/\/docs\/operate\/runbook\.md$/);
  expect(slugsOf('docs/operate/runbook.md')).toContain(heading);
});

test('paths that pages name exist', () => {
  const folders = new Set(FILES.filter((file) => file.includes('/')).map((file) => file.split('/')[0]!));
  const names = new Set(FILES.map((file) => path.basename(file)));
  const exists = (candidate: string): boolean =>
    (candidate.includes('<kind>') ? KINDS : ['*']).every(
      (kind) =>
        globSync(candidate.replaceAll('<kind>', kind).replace(/<[a-z]+>|NNNN/g, '*'), { cwd: ROOT }).length >
        0,
    );
  const isPath = (word: string, page: string): boolean => {
    const [first = '', ...rest] = word.split('/');
    // What a run leaves behind is no part of a checkout.
    if (['', '.', '.data'].includes(first) || rest.length === 0 || !/^[\w.<>*/-]+$/.test(word)) return false;
    return folders.has(first) || existsSync(path.join(ROOT, path.dirname(page), first));
  };
  const isFile = (word: string): boolean => /^[\w.-]+\.(ts|mjs|js|json|md|ya?ml|sql|sh|fbs)$/.test(word);

  const missing = wrongIn((text, page) => {
    const inShell = fencesOf(text).flatMap(({ language, code }) =>
      language === 'sh' ? code.split(/[\s'"=]+/) : [],
    );
    const named = [
      ...[...inlineCodeOf(text), ...inShell].filter((word) => isPath(word, page)),
      ...inlineCodeOf(text).filter(isFile),
    ];
    return named.filter(
      (word) => !names.has(word) && !exists(word) && !exists(path.join(path.dirname(page), word)),
    );
  });

  expect(missing).toEqual([]);
});

test('npm scripts that pages name exist', () => {
  const scriptsOf = (file: string) => (JSON.parse(textOf(file)) as { scripts: object }).scripts;
  const scripts = { ...scriptsOf('package.json'), ...scriptsOf('docs/package.json') };

  const missing = wrongIn((text) =>
    [...text.matchAll(/\bnpm (run [\w:-]+|start|test)\b/g)]
      .map(([, script = '']) => script.replace('run ', ''))
      .filter((script) => !(script in scripts)),
  );

  expect(missing).toEqual([]);
});

test('I40 commands of galaxy-notify that pages name exist, with their options', () => {
  const program = programOf();
  const problemsOf = (line: string): string[] => {
    let command: Command = program;
    for (const word of line.split(' ')) {
      if (command.commands.length === 0) break;
      const inner = command.commands.find((candidate) => candidate.name() === word);
      if (!inner) return [line];
      command = inner;
    }
    const known = [...command.options, ...program.options].map(({ long }) => long);
    return (line.match(/--[a-z-]+/g) ?? []).filter((option) => !known.includes(option)).map(() => line);
  };
  const commandsOf = (text: string): string[] => [
    ...fencesOf(text).flatMap(({ code }) =>
      [
        ...code
          .replaceAll('\\\n', ' ')
          .matchAll(/^ *(?:\$ )?(?:bin\/gn|gn|galaxy-notify) (.*?)(?:\s+#.*)?$/gm),
      ].map(([, line]) => line!),
    ),
    ...inlineCodeOf(text).flatMap((code) => /^(?:bin\/gn|gn|galaxy-notify) ([a-z].*)$/.exec(code)?.[1] ?? []),
  ];

  expect(PAGES.flatMap((page) => commandsOf(textOf(page))).length).toBeGreaterThan(100);
  expect(wrongIn((text) => commandsOf(text).flatMap(problemsOf))).toEqual([]);
});

test('security-25 no page says npx so that it could fetch and run a package of a stranger', () => {
  expect(wrongIn((text) => text.match(/npx (?!--no-install )\S+/g) ?? [])).toEqual([]);
});

/** Columns that say what a row is about, and never change. */
const FACTS = new Set(['is_only_row', 'offers_restart']);

/** The description of the schema that the test of the migrations holds against PostgreSQL. */
function statesOfSchema(): { states: string[]; tables: Set<string> } {
  const description = textOf('test/platform/__snapshots__/migrations.service.test.ts.snap');
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

test('every table and every state of a row has a line, and no line is about another', () => {
  const schema = statesOfSchema();
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

test('every state has a way out, and tests that exist', () => {
  const commands = new Set(commandsBelow(programOf()).map(pathOf));
  const titles = globSync('test/**/*.test.ts', { cwd: ROOT }).flatMap((file) => [
    ...textOf(file).matchAll(TITLE),
  ]);
  const tested = new Set(titles.flatMap(([, title]) => title!.split(' ')));
  for (const { row, meaning, end, command, tests } of STATES) {
    expect([row, meaning === '', end === '']).toEqual([row, false, false]);
    const isOrder = /^(signal|update) \w+$/.test(command);
    const unknown = command === '-' || isOrder ? [] : command.split(', ').filter((one) => !commands.has(one));
    expect([row, unknown]).toEqual([row, []]);
    // A state that never ends by itself needs a command, a signal or an update.
    if (end.startsWith('never')) expect([row, command]).not.toEqual([row, '-']);
    expect([row, tests.filter((id) => !tested.has(id))]).toEqual([row, []]);
  }
});

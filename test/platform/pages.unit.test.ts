/** Pages keep their budgets, and what they name exists: files, headings, npm scripts, commands with their options. */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { DEAD_LETTER_RUNBOOK } from '../../workflows/intent/contract.ts';
import { programOf } from '../../cli/program.ts';

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
  const tooLarge = pages
    .filter(({ page, size }) => size > (BUDGETS[page] ?? 8) * 1024)
    .map(({ page, size }) => `${page}: ${(size / 1024).toFixed(1)} of ${BUDGETS[page] ?? 8} KB`);

  expect(tooLarge).toEqual([]);
  expect(Object.keys(BUDGETS).filter((page) => !FILES.includes(page))).toEqual([]);
  expect(pages.reduce((sum, { size }) => sum + size, 0)).toBeLessThanOrEqual(250 * 1024);
});

test('links between pages lead to a file, and to one of its headings', () => {
  const slugsOf = (page: string) =>
    [...withoutFences(textOf(page)).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
      heading!
        .toLowerCase()
        .replace(/[^\w\- ]/g, '')
        .replaceAll(' ', '-'),
    );

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
  const headings = [...textOf('docs/operate/runbook.md').matchAll(/^### (\w+)$/gm)].map(([, name]) =>
    name!.toLowerCase(),
  );
  const [page, heading] = DEAD_LETTER_RUNBOOK.split('#');
  expect(page).toMatch(/\/docs\/operate\/runbook\.md$/);
  expect(headings).toContain(heading);
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

test('I40 commands of galaxy-notify that pages name exist, with their options', async () => {
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
  const fetching = (text: string): string[] => text.match(/npx (?!--no-install )\S+/g) ?? [];

  expect(wrongIn(fetching)).toEqual([]);
});

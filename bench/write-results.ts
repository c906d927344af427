/**
 * `node bench/write-results.ts result.json …`: the figures of these runs, written with `npm run bench -- --json FILE`, into
 * the pages that quote them. Where runs have the same row, the last one counts.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { format, resolveConfig } from 'prettier';
import type { Row, describeMachine } from './report.ts';
import { numberOf } from './report.ts';

interface Result {
  date: string;
  machine: ReturnType<typeof describeMachine>;
  versions: Record<string, string>;
  rows: Row[];
}

const ROOT = path.dirname(import.meta.dirname);
const results = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, 'utf8')) as Result);
const rows = new Map(results.flatMap((result) => result.rows.map((row) => [row.name, row] as const)));
const { date, machine, versions } = results.at(-1)!;
const measured = [...rows.values()].filter(({ value }) => value !== null);

await fill(
  'README.md',
  'measured',
  measured.filter(({ target }) => target !== null),
);
await fill(
  path.join('deploy', 'SIZING.md'),
  'bench',
  measured.filter(({ name }) =>
    /^(throughput|latency|fan-out|backlog|large-audience)\.(child|on_failure)\b/.test(name),
  ),
);
await fill(path.join('bench', 'README.md'), 'results', measured);

/** Replaces what stands between the marks of a page. @throws Error when the page has none. */
async function fill(page: string, mark: string, shown: readonly Row[]): Promise<void> {
  const file = path.join(ROOT, page);
  const text = readFileSync(file, 'utf8');
  const [begin, end] = [`<!-- ${mark} -->`, `<!-- /${mark} -->`];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${page} has no place for ${mark}`);
  const filled = `${text.slice(0, from)}${begin}\n\n${tableOf(shown)}\n\n${text.slice(to)}`;
  writeFileSync(file, await format(filled, { ...(await resolveConfig(file)), filepath: file }));
}

function tableOf(shown: readonly Row[]): string {
  const { cores, cpu, node } = machine;
  const servers = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const lines = shown.map(
    ({ name, value, unit, target, ok, meaning }) =>
      `| \`${name}\` | ${numberOf(value!)}${unit.startsWith('/') ? '' : ' '}${unit} | ${target ?? ''} | ${ok === false ? 'missed' : ''} | ${meaning} |`,
  );
  return [
    `Measured ${date.slice(0, 10)} on ${cores} cores (${cpu}), node ${node}, ${servers.join(', ')}.`,
    '',
    '| row | value | target | | what |',
    '| --- | --- | --- | --- | --- |',
    ...lines,
  ].join('\n');
}

/**
 * `node bench/write-results.ts result.json …`: the figures of these runs, written with `npm run bench -- --json FILE`, into
 * the pages that quote them. Where runs have the same row, the last one counts.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fillMarkedText } from '../dev/marked-text.ts';
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

await fillMarkedText(
  path.join(ROOT, 'README.md'),
  'measured',
  tableOf(measured.filter(({ target }) => target !== null)),
);
await fillMarkedText(
  path.join(ROOT, 'deploy', 'SIZING.md'),
  'bench',
  tableOf(
    measured.filter(({ name }) =>
      /^(throughput|latency|fan-out|backlog|large-audience)\.(child|on_failure)\b/.test(name),
    ),
  ),
);
await fillMarkedText(path.join(ROOT, 'bench', 'README.md'), 'results', tableOf(measured));

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

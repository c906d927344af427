/**
 * `node bench/write-results.ts result.json …`: the figures of these runs, written with `npm run bench -- --json FILE`, into
 * the pages that quote them. Where runs have the same row, the last one counts.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fillMarkedText } from '../dev/marked-text.ts';
import type { Row, describeMachine } from './report.ts';
import { figureOf } from './report.ts';

interface Result {
  date: string;
  machine: ReturnType<typeof describeMachine>;
  versions: Record<string, string>;
  rows: Row[];
}

/** What README tells of all rows: a name for people, and the row's name in each of the two modes. */
const HEADLINES: [what: string, row: (mode: string) => string][] = [
  ['intents a second, each with a push and an e-mail', (mode) => `throughput.${mode}`],
  ['from XADD to push event, median at one intent a second', (mode) => `latency.${mode}.idle.p50`],
  [
    "writes to Temporal's database for one intent, in state transitions",
    (mode) => `footprint.${mode}.state-transitions`,
  ],
  ['time for one route of an intent with 1,000 recipients', (mode) => `fan-out.${mode}.1000`],
];

/** Rows that deploy/SIZING.md calculates with. */
const SIZING =
  /^(throughput\.(child|on_failure)(\.\w+-cpu)?|fan-out\.\w+\.1000|(backlog|large-audience)\.\w+\.memory-growth)$/;

const ROOT = path.dirname(import.meta.dirname);
const results = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, 'utf8')) as Result);
const rows = new Map(results.flatMap((result) => result.rows.map((row) => [row.name, row] as const)));
const { date, machine, versions } = results.at(-1)!;
const measured = [...rows.values()].filter(({ value }) => value !== null);

await fillMarkedText(path.join(ROOT, 'README.md'), 'measured', headlines());
await fillMarkedText(
  path.join(ROOT, 'deploy', 'SIZING.md'),
  'bench',
  tableOf(measured.filter(({ name }) => SIZING.test(name))),
);
await fillMarkedText(path.join(ROOT, 'bench', 'README.md'), 'results', tableOf(measured));

function headlines(): string {
  const shown = (name: string) => (rows.has(name) ? figureOf(rows.get(name)!) : 'not measured');
  return [
    `Measured ${date.slice(0, 10)} on ${machine.cores} cores (${machine.cpu}):`,
    '',
    '| what | `child` | `on_failure` |',
    '| --- | --- | --- |',
    ...HEADLINES.map(([what, row]) => `| ${what} | ${shown(row('child'))} | ${shown(row('on_failure'))} |`),
  ].join('\n');
}

function tableOf(shown: readonly Row[]): string {
  const { cores, cpu, node } = machine;
  const servers = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const lines = shown.map(
    (row) =>
      `| \`${row.name}\` | ${figureOf(row)} | ${row.target ?? ''} | ${row.ok === false ? 'missed' : ''} | ${row.meaning} |`,
  );
  return [
    `Measured ${date.slice(0, 10)} on ${cores} cores (${cpu}), node ${node}, ${servers.join(', ')}.`,
    '',
    '| row | value | target | | what |',
    '| --- | --- | --- | --- | --- |',
    ...lines,
  ].join('\n');
}

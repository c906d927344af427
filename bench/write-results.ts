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

/** What README tells of all rows: a name for people, and the row's name in each way. */
const HEADLINES: [what: string, row: (mode: string) => string][] = [
  ['intents a second, each with a push and an e-mail', (mode) => `throughput.${mode}`],
  ['from XADD to push event, median at one intent a second', (mode) => `latency.${mode}.idle.p50`],
  [
    "writes to Temporal's database for one intent, in state transitions",
    (mode) => `footprint.${mode}.state-transitions`,
  ],
  ['time for one route of an intent with 1,000 recipients', (mode) => `fan-out.${mode}.1000`],
];

/** Who does the same real work, the row of `throughput`, and what becomes of work in hand when a process dies. */
const PEERS: [who: string, shape: string, crash: string][] = [
  ['this service, slices of 100', 'slices', 'goes on, from the rows'],
  ['this service, `on_failure`', 'on_failure', 'goes on behind the last step'],
  ['this service, `child`', 'child', 'goes on behind the last step'],
  ['DBOS, one workflow of two steps', 'dbos', 'goes on behind the last step'],
  ['DBOS, a child for each route', 'dbos-tree', 'goes on behind the last step'],
  ["Temporal with the SDK's defaults", 'naive-tree', 'goes on behind the last step'],
  ['no engine', 'no-engine', 'is lost'],
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
await fillMarkedText(path.join(ROOT, 'bench', 'README.md'), 'peers', peers());

function shown(name: string): string {
  return rows.has(name) ? figureOf(rows.get(name)!) : 'not measured';
}

function peers(): string {
  return [
    '| who | intents a second | CPU of the servers for one | CPU of the process for one | work in hand at a crash |',
    '| --- | --- | --- | --- | --- |',
    ...PEERS.map(([who, shape, crash]) => {
      const row = `throughput.${shape}`;
      return `| ${who} | ${shown(row)} | ${shown(`${row}.server-cpu`)} | ${shown(`${row}.worker-cpu`)} | ${crash} |`;
    }),
  ].join('\n');
}

function headlines(): string {
  return [
    `Measured ${date.slice(0, 10)} on ${machine.cores} cores (${machine.cpu}):`,
    '',
    '| what | `child` | `on_failure` | slices of 100 |',
    '| --- | --- | --- | --- |',
    ...HEADLINES.map(([what, row]) => {
      const of = (way: string) => shown(row(way));
      // One intent by itself is in no slice.
      const slices = rows.has(row('slices')) ? of('slices') : 'as without';
      return `| ${what} | ${of('child')} | ${of('on_failure')} | ${slices} |`;
    }),
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

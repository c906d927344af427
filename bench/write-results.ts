/**
 * `node bench/write-results.ts result.json …`: the figures of these runs, written with `npm run bench -- --json FILE`, into
 * results.json and the pages that quote them. Of each row the latest figure stays; where runs have the same row, the last
 * one counts.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fillMarkedText } from '../dev/marked-text.ts';
import type { Row, describeMachine } from './report.ts';
import { figureOf } from './report.ts';

interface Result {
  date: string;
  machine: ReturnType<typeof describeMachine>;
  rows: Row[];
}

/** The latest figure of a row. */
interface Latest extends Pick<Row, 'name' | 'target' | 'ok' | 'meaning'> {
  /** With its unit. */
  figure: string;
  /** The day. */
  measured: string;
  cores: number;
  cpu: string;
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
  /^((cluster\.)?throughput\.(child|on_failure|slices)(\.\w+-cpu)?|fan-out\.\w+\.1000|(backlog|large-audience)\.\w+\.memory-growth)$/;

const ROOT = path.dirname(import.meta.dirname);
const FILE = path.join(import.meta.dirname, 'results.json');
const rows = new Map(
  [...(JSON.parse(readFileSync(FILE, 'utf8')) as Latest[]), ...process.argv.slice(2).flatMap(latestOf)].map(
    (row) => [row.name, row] as const,
  ),
);
// Those of one measurement together.
const latest = [...Map.groupBy(rows.values(), ({ name }) => name.split('.', 1)[0]).values()].flat();
writeFileSync(FILE, `${JSON.stringify(latest, null, 2)}\n`);

await fillMarkedText(path.join(ROOT, 'README.md'), 'measured', headlines());
await fillMarkedText(
  path.join(ROOT, 'deploy', 'SIZING.md'),
  'bench',
  tableOf(latest.filter(({ name }) => SIZING.test(name))),
);
await fillMarkedText(path.join(ROOT, 'bench', 'README.md'), 'results', tableOf(latest));
await fillMarkedText(path.join(ROOT, 'bench', 'README.md'), 'peers', peers());

function latestOf(file: string): Latest[] {
  const { date, machine, rows: found } = JSON.parse(readFileSync(file, 'utf8')) as Result;
  return found
    .filter(({ value }) => value !== null)
    .map((row) => ({
      ...{ name: row.name, figure: figureOf(row), target: row.target, ok: row.ok, meaning: row.meaning },
      ...{ measured: date.slice(0, 10), cores: machine.cores, cpu: machine.cpu },
    }));
}

function shown(name: string): string {
  return rows.get(name)?.figure ?? 'not measured';
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
    'On 2 cores; [bench/README.md](bench/README.md#results) says when each was measured:',
    '',
    '| what | `child` | `on_failure` | slices of 100 |',
    '| --- | --- | --- | --- |',
    ...HEADLINES.map(([what, row]) => {
      // One intent by itself, or one for many, is in no slice.
      const slices = rows.get(row('slices'))?.figure ?? '—';
      return `| ${what} | ${shown(row('child'))} | ${shown(row('on_failure'))} | ${slices} |`;
    }),
  ].join('\n');
}

function tableOf(chosen: readonly Latest[]): string {
  return [
    '| row | value | target | | measured | on | what |',
    '| --- | --- | --- | --- | --- | --- | --- |',
    ...chosen.map(
      ({ name, figure, target, ok, measured, cores, cpu, meaning }) =>
        `| \`${name}\` | ${figure} | ${target ?? ''} | ${ok === false ? 'missed' : ''} | ${measured} | ${cores} × ${cpu} | ${meaning} |`,
    ),
  ].join('\n');
}

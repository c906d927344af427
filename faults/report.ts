/** What a run found out, as JSON and as Markdown. */
import { cpus, totalmem } from 'node:os';
import type { Spoiled } from './ledger/excuse.ts';
import type { Verdict } from './ledger/verdict.ts';
import { CHARGES } from './ledger/verdict.ts';

export interface Result {
  date: string;
  machine: string;
  seed: string;
  command: string;
  /** How intents were worked off. */
  dispatch: string;
  isEncrypted: boolean;
  /** Everything from the first intent to the last check, s. */
  seconds: number;
  /** How long it took after the last fault until all was done, s. */
  settledAfterSeconds: number;
  faults: FaultRow[];
  works: Record<string, Verdict>;
  /** Of the time of the load: how much of it would excuse that a push is sent twice. */
  excusedShare: number;
  /** Marks where none may be. */
  leaked: string[];
  /** Processes that ended by themselves. */
  crashes: string[];
  failedStarts: number;
  /** Of the servers, by their names. */
  versions: Record<string, string>;
  /** Tasks of workflows that failed in whatever way but a crash, by cause. */
  failedTasks: Record<string, number>;
  isGood: boolean;
}

export interface FaultRow {
  name: string;
  count: number;
  /** From the end of each to the first delivery after it, ms; without those after which nothing was left to deliver. */
  recoveriesMs: number[];
}

export const machineOf = (): string =>
  `${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GB, Node ${process.versions.node}`;

/** @param arrivals when entries came out, ascending. */
export function faultRowsOf(faults: readonly Spoiled[], arrivals: readonly number[]): FaultRow[] {
  const rows = new Map<string, FaultRow>();
  for (const { name, endedAt, isGoingOn } of faults) {
    if (isGoingOn) continue;
    const { count, recoveriesMs } = rows.get(name) ?? { count: 0, recoveriesMs: [] };
    const first = arrivals.find((at) => at >= endedAt);
    rows.set(name, {
      name,
      count: count + 1,
      recoveriesMs: first === undefined ? recoveriesMs : [...recoveriesMs, first - endedAt],
    });
  }
  return [...rows.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

const all = (results: readonly Result[], of: (verdict: Verdict) => number): number =>
  results.flatMap(({ works }) => Object.values(works)).reduce((sum, verdict) => sum + of(verdict), 0);

const countOf = (results: readonly Result[], charge: (typeof CHARGES)[number]): number =>
  all(results, (verdict) => verdict[charge].length);

const percentOf = (share: number): string => `${(share * 100).toFixed(1)} %`;

const msOf = (ms: number | undefined): string => (ms === undefined ? '-' : `${Math.round(ms)} ms`);

/** @param sorted ascending. */
function medianOf(sorted: readonly number[]): number | undefined {
  const half = sorted.length >> 1;
  if (sorted.length % 2 === 1 || sorted.length === 0) return sorted[half];
  return (sorted[half - 1]! + sorted[half]!) / 2;
}

/** A sentence about any number of runs. */
export function summaryOf(results: readonly Result[]): string {
  const dates = results.map(({ date }) => date.slice(0, 10)).sort();
  const faults = results.flatMap((result) => result.faults).reduce((sum, { count }) => sum + count, 0);
  const intents = all(results, ({ figures }) => figures['intents'] ?? 0);
  return `The last ${results.length} runs of the fault suite (${dates.at(-1)}, ${results[0]?.machine ?? ''}) published ${intents} intents
under ${faults} faults: **${CHARGES.map((charge) => `${countOf(results, charge)} ${charge}`).join(', ')}**.`;
}

/** With what a run was made, as `Temporal 1.32.2, PostgreSQL 18.4, Redis 7.0.15`. */
export const serversOf = ({ versions }: Result): string =>
  Object.entries(versions)
    .map((words) => words.join(' '))
    .join(', ');

/** One page about any number of runs. */
export function markdownOf(results: readonly Result[]): string {
  const [first] = results;
  const kinds = new Map<string, FaultRow[]>();
  for (const row of results.flatMap(({ faults }) => faults))
    kinds.set(row.name, [...(kinds.get(row.name) ?? []), row]);
  const faultCount = [...kinds.values()].flat().reduce((sum, { count }) => sum + count, 0);
  const works = [...new Set(results.flatMap((result) => Object.keys(result.works)))];
  return `# Report of the fault suite

Written by \`faults/write-report.ts\` from the results of \`npm run test:faults -- --json FILE\`; no figure is written by hand.

- Machine: ${first?.machine ?? ''}
- Servers: ${[...new Set(results.map(serversOf))].join('; ')}
- Runs: ${results.length}, ${results.filter(({ isGood }) => isGood).length} of them good
- Faults injected: ${faultCount}
- Intents published: ${all(results, ({ figures }) => figures['intents'] ?? 0)}
- Lost: ${countOf(results, 'lost')}
- Misdirected: ${countOf(results, 'misdirected')}
- Altered: ${countOf(results, 'altered')}
- Doubled, with other ids or for no reason: ${countOf(results, 'doubled')}
- Otherwise wrong: ${countOf(results, 'wrong')}
- Repeated with equal ids, which receivers drop: ${all(results, ({ repeated }) => repeated)}
- Largest share of the load in which a double of a push would have been excused: ${percentOf(Math.max(0, ...results.map(({ excusedShare }) => excusedShare)))}
- Personal data outside its places: ${results.reduce((sum, { leaked }) => sum + leaked.length, 0)}

## Runs

| date | seed | mode | payloads | faults | seconds | settled after | ${CHARGES.join(' | ')} | repeated | excused | result |
| --- | --- | --- | --- | --- | --- | --- | ${CHARGES.map(() => '---').join(' | ')} | --- | --- | --- |
${results
  .map(
    (result) =>
      `| ${result.date.slice(0, 16).replace('T', ' ')} | \`${result.seed}\` | \`${result.dispatch}\` | ${result.isEncrypted ? 'encrypted' : 'plain'} | ${result.faults.reduce((sum, { count }) => sum + count, 0)} | ${result.seconds.toFixed(0)} | ${result.settledAfterSeconds.toFixed(0)} s | ${CHARGES.map((charge) => countOf([result], charge)).join(' | ')} | ${all([result], ({ repeated }) => repeated)} | ${percentOf(result.excusedShare)} | ${result.isGood ? 'good' : 'BAD'} |`,
  )
  .join('\n')}

\`settled after\`: from the end of the last fault until everything was in a final state, dead letters replayed included.
\`excused\`: the windows of single sends to FCM in which a fault can have taken away that FCM has it, as a share of the load;
above 5 % a run is bad. \`repeated\`: came again under the same id.

## Faults, and how long deliveries took to come back

From the end of a fault to the first outbound entry after it; of a process that was killed from its death, since another
one goes on. Faults overlap, so a time may be another fault's.

| fault | injected | median | longest |
| --- | --- | --- | --- |
${[...kinds]
  .sort()
  .map(([name, rows]) => {
    const count = rows.reduce((sum, row) => sum + row.count, 0);
    const times = rows.flatMap(({ recoveriesMs }) => recoveriesMs).sort((a, b) => a - b);
    return `| ${name} | ${count} | ${msOf(medianOf(times))} | ${msOf(times.at(-1))} |`;
  })
  .join('\n')}

## What was done

${works
  .map((work) => {
    const figures = new Map<string, number>();
    for (const result of results) {
      for (const [name, value] of Object.entries(result.works[work]?.figures ?? {}))
        figures.set(name, (figures.get(name) ?? 0) + value);
    }
    return `- **${work}**: ${[...figures].map(([name, value]) => `${name} ${value}`).join(', ')}`;
  })
  .join('\n')}
`;
}

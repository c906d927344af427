/** The result of a run, as JSON and as Markdown. */
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

const sumOf = ({ works }: Result, of: (verdict: Verdict) => number): number =>
  Object.values(works).reduce((sum, verdict) => sum + of(verdict), 0);

const msOf = (ms: number | undefined): string => (ms === undefined ? '-' : `${Math.round(ms)} ms`);

/** @param sorted ascending. */
function medianOf(sorted: readonly number[]): number | undefined {
  const half = sorted.length >> 1;
  if (sorted.length % 2 === 1 || sorted.length === 0) return sorted[half];
  return (sorted[half - 1]! + sorted[half]!) / 2;
}

/** The servers of a run, as `Temporal 1.32.2, PostgreSQL 18.4, Redis 7.0.15`. */
export const serversOf = ({ versions }: Result): string =>
  Object.entries(versions)
    .map((words) => words.join(' '))
    .join(', ');

/** The page that a run prints at its end. */
export function markdownOf(result: Result): string {
  return `# Report of the fault suite

- Run: ${result.isGood ? 'good' : 'BAD'}, ${result.date.slice(0, 16).replace('T', ' ')}, seed \`${result.seed}\`, mode \`${result.dispatch}\`, payloads ${result.isEncrypted ? 'encrypted' : 'plain'}
- Machine: ${result.machine}
- Servers: ${serversOf(result)}
- Faults injected: ${result.faults.reduce((sum, { count }) => sum + count, 0)}
- Intents published: ${sumOf(result, ({ figures }) => figures['intents'] ?? 0)}
${CHARGES.map((charge) => `- ${charge}: ${sumOf(result, (verdict) => verdict[charge].length)}`).join('\n')}
- repeated with equal ids, which receivers drop: ${sumOf(result, ({ repeated }) => repeated)}
- Share of the load in which a double of a push would have been excused, at most 5 % in a good run: ${(result.excusedShare * 100).toFixed(1)} %
- Personal data outside its places: ${result.leaked.length}
- The run took ${result.seconds.toFixed(0)} s. Everything was in a final state, dead letters replayed included, ${result.settledAfterSeconds.toFixed(0)} s after the last fault

## Faults, and how long deliveries took to come back

From the end of a fault to the first outbound entry after it; of a process that was killed from its death, since another
one goes on. Faults overlap, so a time may be another fault's.

| fault | injected | median | longest |
| --- | --- | --- | --- |
${result.faults
  .map(({ name, count, recoveriesMs }) => {
    const times = recoveriesMs.toSorted((a, b) => a - b);
    return `| ${name} | ${count} | ${msOf(medianOf(times))} | ${msOf(times.at(-1))} |`;
  })
  .join('\n')}

## What was done

${Object.entries(result.works)
  .map(
    ([work, { figures }]) =>
      `- **${work}**: ${Object.entries(figures)
        .map(([name, value]) => `${name} ${value}`)
        .join(', ')}`,
  )
  .join('\n')}
`;
}

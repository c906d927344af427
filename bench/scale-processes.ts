/**
 * A backlog of slices that one, two and four processes of the service share on one Temporal: how fast it drains, what an
 * intent costs, and how evenly it is shared. Where there are fewer cores than processes, they are the limit; then what counts
 * is that an intent costs no more.
 */
import type { Bench, Part } from './environment.ts';
import {
  IN_SLICES,
  ROUTES_PER_RECIPIENT,
  appendIntents,
  burst,
  countHandOffs,
  routesSettled,
} from './intent.ts';
import type { Finding, Measurement } from './measurement.ts';
import type { ServiceProcess } from './processes.ts';
import { cpuSecondsOf } from './processes.ts';
import { until } from './rounds.ts';

const PROCESSES = [1, 2, 4] as const;
/** Intents of the backlog, as a share of that of one process: each process takes a while to warm up. */
const BACKLOG_SHARE = 0.2;
/** The reader's process also reads; beyond this one would do most of the work. */
const MOST_SHARE = 0.8;
const LOOK_INTERVAL_MS = 50;

export const scaleProcesses: Measurement = {
  name: 'processes.slices',
  meaning: 'a backlog of slices that several processes of the service share',
  isQuick: false,
  rows: PROCESSES.flatMap((count) => {
    const name = `processes.slices.${count}`;
    return [
      { name, unit: '/s', meaning: `intents, ${processes(count)}` },
      { name: `${name}.cpu`, unit: 'ms', meaning: 'CPU of servers and processes for one' },
      ...(count === 1
        ? []
        : [
            {
              name: `${name}.largest-share`,
              unit: '',
              target: { atMost: Math.max(MOST_SHARE, 1 / count) },
              meaning: "of the processes' CPU, the one that has most",
            },
          ]),
    ];
  }),

  async run(bench) {
    const findings: Finding[] = [];
    for (const count of PROCESSES) findings.push(...(await drainBy(bench, count)));
    return findings;
  },
};

async function drainBy(bench: Bench, count: number): Promise<Finding[]> {
  const part = await bench.part('slices');
  const total = Math.ceil(BACKLOG_SHARE * bench.sizes.backlog.slices);
  const services = await startAll(bench, count);
  try {
    // All of them have worked before: their compilers are warm.
    await drain(part, Math.ceil(total / 4));
    const before = cpuOf(bench, services);
    const seconds = await drain(part, total);
    const after = cpuOf(bench, services);
    const spent = after.map((value, index) => value - before[index]!);
    const [servers = 0, ...ofProcesses] = spent;
    const sum = ofProcesses.reduce((all, one) => all + one, 0);
    const row = `processes.slices.${count}`;
    return [
      { row, value: total / seconds, details: { intents: total, seconds, servers, ofProcesses } },
      ...(Number.isNaN(sum)
        ? []
        : [
            { row: `${row}.cpu`, value: (1_000 * (servers + sum)) / total },
            ...(count === 1 ? [] : [{ row: `${row}.largest-share`, value: Math.max(...ofProcesses) / sum }]),
          ]),
    ];
  } finally {
    await Promise.all(services.map((service) => service.stop()));
  }
}

/** Besides them nobody works on slices. */
async function startAll(bench: Bench, count: number): Promise<ServiceProcess[]> {
  // The tables are made by one.
  await burst(bench, 'slices', 10);
  await bench.stopService('slices');
  bench.report(`Starting ${processes(count)} of the service`);
  return Promise.all(
    Array.from({ length: count }, (_, index) => bench.startProcess('slices', IN_SLICES, `slices-${index}`)),
  );
}

/** @returns how long it took, s. */
async function drain(part: Part, total: number): Promise<number> {
  const before = await countHandOffs(part);
  const startedAt = performance.now();
  const ids = await appendIntents(part, total);
  await until(`${total} intents to be handed off`, LOOK_INTERVAL_MS, async () => {
    return (await countHandOffs(part)) - before >= total * ROUTES_PER_RECIPIENT;
  });
  await routesSettled(part, ids, total * ROUTES_PER_RECIPIENT);
  return (performance.now() - startedAt) / 1_000;
}

/** @returns of the servers together, then of each process, s; NaN where the system does not tell. */
function cpuOf(bench: Bench, services: readonly ServiceProcess[]): number[] {
  const { temporal = Number.NaN, postgres = Number.NaN, redis = Number.NaN } = bench.cpu(process.pid) ?? {};
  return [temporal + postgres + redis, ...services.map(({ pid }) => cpuSecondsOf([pid]) ?? Number.NaN)];
}

function processes(count: number): string {
  return count === 1 ? 'one process' : `${count} processes`;
}

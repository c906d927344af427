/**
 * How long a push takes from the XADD of its intent to its entry in the stream of Gateway: with nothing else going on,
 * and at half of the rate that the mode can do. Both ends are seen by the benchmark, with one clock.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { publishIntent } from '../client/notificationintent.ts';
import { baselinesOf } from './baselines.ts';
import type { Bench, Mode, Part } from './environment.ts';
import { MODES } from './environment.ts';
import { GATEWAY_STREAM, intentFor, serviceOf } from './intent.ts';
import type { Finding, Measurement, RowSpec } from './measurement.ts';
import { until } from './rounds.ts';
import { quantile } from './statistics.ts';
import { rateOf } from './throughput.ts';

const MOST_ROUND_TRIPS: Record<Mode, number> = { child: 4, on_failure: 1.5 };
const BLOCK_MS = 1_000;
const LOOK_INTERVAL_MS = 50;
/** Before the first one that counts. */
const WARM_UP_INTENTS = 3;

const QUANTILES = { p50: 0.5, p99: 0.99 } as const;
const LOADS = { idle: 'one intent a second', 'half-load': 'half of the highest rate' } as const;
type Load = keyof typeof LOADS;

export const latency: Measurement = {
  name: 'latency',
  meaning: 'from the XADD of an intent to its push event, and the round trip of an empty workflow beside it',
  isQuick: true,
  rows: [
    {
      name: 'latency.empty-workflow.p50',
      unit: 'ms',
      meaning: 'round trip of an empty workflow, one a second',
    },
    ...MODES.flatMap((mode) => (Object.keys(LOADS) as Load[]).flatMap((load) => rowsOf(mode, load))),
  ],

  async run(bench) {
    const idle = await oneASecond(bench);
    const findings: Finding[] = [
      {
        row: 'latency.empty-workflow.p50',
        value: quantile(idle.roundTrips, 0.5),
        details: { msEach: idle.roundTrips },
      },
    ];
    for (const mode of MODES) findings.push(...findingsOf(mode, 'idle', idle[mode], idle.roundTrips));
    for (const mode of MODES) {
      const rate = (await rateOf(bench, mode)) / 2;
      bench.report(`${mode}: ${rate.toFixed(1)} intents a second for ${bench.sizes.loadSeconds} s`);
      const found = await steadily(bench, mode, rate, bench.sizes.loadSeconds);
      findings.push(...findingsOf(mode, 'half-load', found, idle.roundTrips, rate));
    }
    return findings;
  },
};

function rowsOf(mode: Mode, load: Load): RowSpec[] {
  return [
    ...Object.keys(QUANTILES).map((name) => ({
      name: `latency.${mode}.${load}.${name}`,
      unit: 'ms',
      meaning: `XADD to push event, ${LOADS[load]}`,
    })),
    {
      name: `latency.${mode}.${load}/empty-workflow`,
      unit: '',
      // The target is about a quiet service; under load the machine decides.
      ...(load === 'idle' ? { target: { atMost: MOST_ROUND_TRIPS[mode] } } : {}),
      meaning: 'p50 in round trips of an empty workflow',
    },
  ];
}

function findingsOf(
  mode: Mode,
  load: Load,
  latencies: number[],
  roundTrips: number[],
  perSecond = 1,
): Finding[] {
  const details = { perSecond, msEach: latencies };
  return [
    ...Object.entries(QUANTILES).map(([name, share]) => ({
      row: `latency.${mode}.${load}.${name}`,
      value: quantile(latencies, share),
      details,
    })),
    {
      row: `latency.${mode}.${load}/empty-workflow`,
      value: quantile(latencies, 0.5) / quantile(roundTrips, 0.5),
    },
  ];
}

/** Both modes and the empty workflow take turns within each second. */
async function oneASecond(bench: Bench): Promise<Record<Mode | 'roundTrips', number[]>> {
  const baselines = await baselinesOf(bench);
  for (const mode of MODES) await serviceOf(bench, mode);
  const probes = await Promise.all(MODES.map(async (mode) => openProbe(await bench.part(mode))));
  const roundTrips: number[] = [];
  const turns: (() => Promise<unknown>)[] = [
    ...probes.map((probe) => () => probe.publish()),
    async () => void roundTrips.push(await baselines.emptyRoundTrip()),
  ];
  const { idleSeconds } = bench.sizes;
  bench.report(`One a second for ${idleSeconds} s`);
  try {
    const seconds = WARM_UP_INTENTS + idleSeconds;
    await paced(turns.length, seconds, (n) => turns[n % turns.length]!());
    const [child, onFailure] = await Promise.all(probes.map((probe) => probe.latencies()));
    return {
      child: child!.slice(WARM_UP_INTENTS),
      on_failure: onFailure!.slice(WARM_UP_INTENTS),
      roundTrips: roundTrips.slice(WARM_UP_INTENTS),
    };
  } finally {
    for (const probe of probes) probe.close();
  }
}

async function steadily(bench: Bench, mode: Mode, perSecond: number, seconds: number): Promise<number[]> {
  await serviceOf(bench, mode);
  const probe = await openProbe(await bench.part(mode));
  try {
    await paced(perSecond, seconds, () => probe.publish());
    return await probe.latencies();
  } finally {
    probe.close();
  }
}

/** Does something at a steady rate, however long each time takes. */
export async function paced(perSecond: number, seconds: number, act: (n: number) => Promise<unknown>) {
  const startedAt = performance.now();
  const acts: Promise<unknown>[] = [];
  for (let n = 0; n < perSecond * seconds; n += 1) {
    await sleep(Math.max(0, startedAt + (n * 1_000) / perSecond - performance.now()));
    acts.push(act(n));
  }
  await Promise.all(acts);
}

interface Probe {
  publish(): Promise<void>;
  /** Waits for the last one. @returns ms of each, in the order of publication. */
  latencies(): Promise<number[]>;
  close(): void;
}

/** Publishes intents, and notes the arrival of their push events with a blocking read of the stream. */
export async function openProbe(part: Part): Promise<Probe> {
  const reader = part.openRedis();
  const published = new Map<string, number>();
  const arrived = new Map<string, number>();
  const [newest] = await part.redis.xrevrange(GATEWAY_STREAM, '+', '-', 'COUNT', 1);
  const reading = follow(reader, newest?.[0] ?? '0-0', (notificationId) =>
    arrived.set(notificationId, performance.now()),
  );
  let failure: Error | undefined;
  let isClosed = false;
  reading.catch((error: Error) => (failure = error));
  return {
    async publish() {
      const at = performance.now();
      published.set(await publishIntent(part.redis, intentFor(1)), at);
    },
    async latencies() {
      await until(`${published.size} push events`, LOOK_INTERVAL_MS, () => {
        if (failure && !isClosed) throw failure;
        return [...published.keys()].every((id) => arrived.has(id));
      });
      return [...published].map(([id, at]) => arrived.get(id)! - at);
    },
    close() {
      // Hanging up makes the blocked read fail, which is how it ends.
      isClosed = true;
      reader.disconnect();
    },
  };
}

async function follow(
  reader: Redis,
  after: string,
  onPush: (notificationId: string) => void,
): Promise<never> {
  for (let last = after; ;) {
    const reply = await reader.xread('COUNT', 100, 'BLOCK', BLOCK_MS, 'STREAMS', GATEWAY_STREAM, last);
    for (const [id, fields] of reply?.[0]?.[1] ?? []) {
      last = id;
      // `<notification id>/<route id>`
      const eventId = fields[fields.indexOf('event_id') + 1]!;
      onPush(eventId.slice(0, eventId.indexOf('/')));
    }
  }
}

/**
 * A backlog that gathered while the service was stopped: whether it keeps draining as fast as it began, and with the
 * same memory. The first fifth has the start of the service in it, so the last one is held against the second.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench, Way } from './environment.ts';
import { WAYS } from './environment.ts';
import {
  ROUTES_PER_RECIPIENT,
  appendIntents,
  burst,
  countHandOffs,
  routesSettled,
  serviceOf,
} from './intent.ts';
import type { Measurement } from './measurement.ts';
import { memoryMbOf } from './processes.ts';
import { ROUND_LIMIT_MS } from './rounds.ts';
import type { DrainSample } from './statistics.ts';
import { drainRatio, meanInFifth } from './statistics.ts';

const LEAST_RATIO = 0.9;
/** More than this is not flat any more. */
const MOST_MEMORY_RATIO = 1.1;
const SAMPLE_INTERVAL_MS = 250;

/** `mb` is absent where the system does not tell it. */
type Sample = DrainSample & { mb?: number };

/** One for each mode: they take minutes. */
export const backlogs = WAYS.map((way): Measurement => ({
  name: `backlog.${way}`,
  meaning: 'intents that were published while the service was stopped',
  isQuick: false,
  rows: [
    { name: `backlog.${way}.drained`, unit: '/s', meaning: 'intents, over the whole drain' },
    {
      name: `backlog.${way}.last/second`,
      unit: '',
      target: { atLeast: LEAST_RATIO },
      meaning: 'drain rate in the last fifth against the second',
    },
    {
      name: `backlog.${way}.memory.last/second`,
      unit: '',
      target: { atMost: MOST_MEMORY_RATIO },
      meaning: 'resident memory of the service, the same fifths',
    },
    {
      name: `backlog.${way}.memory-growth`,
      unit: 'MB',
      meaning: 'resident memory of the service, highest above the start',
    },
  ],

  async run(bench) {
    const total = bench.sizes.backlog[way];
    const samples = await drain(bench, way, total);
    const row = (name: string) => `backlog.${way}.${name}`;
    const memory = samples.flatMap(({ mb }) => (mb === undefined ? [] : [mb]));
    const memoryIn = (n: number) => meanInFifth(samples, total, n, ({ mb = Number.NaN }) => mb);
    return [
      {
        row: row('drained'),
        value: (1_000 * total) / samples.at(-1)!.ms,
        details: { intents: total, samples },
      },
      { row: row('last/second'), value: drainRatio(samples, total) },
      ...(memory.length === 0
        ? []
        : [
            { row: row('memory.last/second'), value: memoryIn(5) / memoryIn(2) },
            { row: row('memory-growth'), value: Math.max(...memory) - memory[0]! },
          ]),
    ];
  },
}));

/** @returns intents done and memory, from the moment when the service is ready until all are done. */
async function drain(bench: Bench, way: Way, total: number): Promise<Sample[]> {
  const part = await bench.part(way);
  // The service must have read its stream before: the first start of all takes longer than any other.
  await burst(bench, way, 10);
  await bench.stopService(way);
  const before = await countHandOffs(part);
  const ids = await appendIntents(part, total);
  bench.report(`${way}: draining ${total} intents`);
  const { pid } = await serviceOf(bench, way);
  const startedAt = performance.now();
  const samples: Sample[] = [];
  for (let done = 0; done < total; await sleep(SAMPLE_INTERVAL_MS)) {
    done = ((await countHandOffs(part)) - before) / ROUTES_PER_RECIPIENT;
    const mb = memoryMbOf(pid);
    samples.push({ ms: performance.now() - startedAt, done, ...(mb === undefined ? {} : { mb }) });
    if (samples.at(-1)!.ms > ROUND_LIMIT_MS) throw new Error(`only ${done} of ${total} intents are done`);
  }
  await routesSettled(part, ids, total * ROUTES_PER_RECIPIENT);
  return samples;
}

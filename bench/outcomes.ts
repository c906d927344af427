/** What it costs that producers are told what became of their intents, and how soon they hear it. */
import type { Bench, Way } from './environment.ts';
import { WAYS } from './environment.ts';
import { appendIntents, burst } from './intent.ts';
import type { Finding, Measurement } from './measurement.ts';
import type { Round } from './rounds.ts';
import { interleave, medianOf, until } from './rounds.ts';
import { quantile, ratios } from './statistics.ts';

const ROW = 'outcomes';
const WARM_UP_SHARE = 0.5;
const LEAST_SHARE = 0.9;
const LATEST_MS = 1_000;
const STREAM = 'notification:outcomes';
/** Rounds of what is quicker are as much longer: otherwise they would end within a moment. */
const FACTORS: Record<Way, number> = { child: 1, on_failure: 2, direct: 20 };
/** Of which it is measured how late they are told. */
const LOOKED_AT = 200;
const LOOK_INTERVAL_MS = 50;

export const outcomes: Measurement = {
  name: ROW,
  meaning: 'intents a second, with NOTIFICATION_OUTCOMES=all and without, and how soon their end is told',
  isQuick: false,
  rows: [
    ...WAYS.flatMap((way) => [
      { name: `${ROW}.${way}.without`, unit: '/s', meaning: 'nothing is told' },
      { name: `${ROW}.${way}.with`, unit: '/s', meaning: 'every event is told' },
      {
        name: `${ROW}.${way}.with/without`,
        unit: '',
        target: { atLeast: LEAST_SHARE },
        meaning: 'what telling leaves',
      },
    ]),
    {
      name: `${ROW}.late.p99`,
      unit: 'ms',
      target: { atMost: LATEST_MS },
      meaning: 'from the settlement of an intent to its end in the stream',
    },
  ],
  async run(bench) {
    const findings: Finding[] = [];
    for (const way of WAYS) {
      const rounds = await interleave(
        bench.sizes.rounds,
        { without: () => round(bench, way, 'none'), with: () => round(bench, way, 'all') },
        bench.report,
      );
      const rateOf = (variant: keyof typeof rounds) => rounds[variant].map(({ perSecond }) => perSecond);
      findings.push(
        { ...medianOf(`${ROW}.${way}.without`, rateOf('without')), details: rounds.without },
        { ...medianOf(`${ROW}.${way}.with`, rateOf('with')), details: rounds.with },
        medianOf(`${ROW}.${way}.with/without`, ratios(rateOf('with'), rateOf('without'))),
      );
    }
    findings.push({ row: `${ROW}.late.p99`, value: quantile(await lateMs(bench), 0.99) });
    // Others measure the service as it is by default.
    for (const way of WAYS) await bench.stopService(way);
    return findings;
  },
};

async function start(bench: Bench, way: Way, told: string): Promise<void> {
  await bench.stopService(way);
  const mode = { NOTIFICATION_ROUTE_DISPATCH: way };
  await bench.service(way, { ...mode, NOTIFICATION_OUTCOMES: told });
}

/** Runs in a separate process, after a warm-up. */
async function round(bench: Bench, way: Way, told: string): Promise<Round> {
  const count = FACTORS[way] * bench.sizes.intents;
  await start(bench, way, told);
  await burst(bench, way, Math.ceil(WARM_UP_SHARE * count));
  return burst(bench, way, count);
}

/** One intent at a time, so that nothing else holds an event up: by the clocks of PostgreSQL and Redis, which are one here. */
async function lateMs(bench: Bench): Promise<number[]> {
  await start(bench, 'on_failure', 'ends');
  const part = await bench.part('on_failure');
  const late: number[] = [];
  let last = await lastIn(part.redis);
  while (late.length < LOOKED_AT) {
    await appendIntents(part, 1);
    await until('the end of an intent to be told', LOOK_INTERVAL_MS, async () => {
      for (const [id, fields] of await part.redis.xrange(STREAM, `(${last}`, '+')) {
        last = id;
        late.push(Number(id.split('-')[0]) - Number(fields[fields.indexOf('occurred_at_ms') + 1]));
        return true;
      }
      return false;
    });
  }
  return late;
}

async function lastIn(redis: Awaited<ReturnType<Bench['part']>>['redis']): Promise<string> {
  const [newest] = await redis.xrevrange(STREAM, '+', '-', 'COUNT', 1);
  return newest?.[0] ?? '0-0';
}

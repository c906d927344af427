/** What it costs that a replica of Redis must have each hand-off before its row is settled. */
import path from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../dev/servers/redis.ts';
import type { Bench } from './environment.ts';
import { MODES } from './environment.ts';
import { burst } from './intent.ts';
import type { Measurement } from './measurement.ts';
import type { Round } from './rounds.ts';
import { interleave, medianOf, until } from './rounds.ts';
import { ratios } from './statistics.ts';

const ROW = 'replication';
/** More hand-offs a second than in the other one. */
const MODE = MODES[1];
const WARM_UP_SHARE = 0.5;
const LOOK_INTERVAL_MS = 50;
/** A round trip that all hand-offs of the time share. */
const LEAST_SHARE = 0.8;

export const replication: Measurement = {
  name: ROW,
  meaning: 'intents a second, with a replica that must have each hand-off and without',
  isQuick: false,
  rows: [
    { name: `${ROW}.without`, unit: '/s', meaning: 'a replica follows, and nothing waits for it' },
    { name: `${ROW}.with`, unit: '/s', meaning: 'NOTIFICATION_REDIS_MIN_REPLICAS=1' },
    {
      name: `${ROW}.with/without`,
      unit: '',
      target: { atLeast: LEAST_SHARE },
      meaning: 'what the waits leave',
    },
  ],
  async run(bench) {
    await startReplica(bench);
    const rounds = await interleave(
      bench.sizes.rounds,
      { without: () => round(bench, 0), with: () => round(bench, 1) },
      bench.report,
    );
    // Others measure the service as it is by default.
    await bench.stopService(MODE);
    const rateOf = (variant: keyof typeof rounds) => rounds[variant].map(({ perSecond }) => perSecond);
    return [
      { ...medianOf(`${ROW}.without`, rateOf('without')), details: rounds.without },
      { ...medianOf(`${ROW}.with`, rateOf('with')), details: rounds.with },
      medianOf(`${ROW}.with/without`, ratios(rateOf('with'), rateOf('without'))),
    ];
  },
};

/** Runs in a separate process, after a warm-up. */
async function round(bench: Bench, minReplicas: number): Promise<Round> {
  await bench.stopService(MODE);
  await bench.service(MODE, {
    NOTIFICATION_ROUTE_DISPATCH: MODE,
    NOTIFICATION_REDIS_MIN_REPLICAS: String(minReplicas),
  });
  await burst(bench, MODE, Math.ceil(WARM_UP_SHARE * bench.sizes.intents));
  return burst(bench, MODE, bench.sizes.intents);
}

/** Follows the Redis of the run until its end. */
async function startReplica(bench: Bench): Promise<void> {
  const { redis: master } = await bench.part(MODE);
  const { host = '', port = 0 } = master.options;
  const dataDir = path.join(bench.dataDir, 'replica');
  const { addr, stop } = await startRedis({ dataDir, port: 0, report: bench.report });
  const replica = new Redis(Number(addr.split(':')[1]));
  bench.onClose(async () => {
    replica.disconnect();
    await stop();
  });
  await replica.replicaof(host, port);
  await until('the replica to follow', LOOK_INTERVAL_MS, async () =>
    (await replica.info('replication')).includes('master_link_status:up'),
  );
}

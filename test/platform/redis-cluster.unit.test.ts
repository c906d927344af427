/** Redis Cluster is refused: a hand-off is one script with keys of several slots. */
import type { Redis } from 'ioredis';
import { redisChecks } from '../../cli/check-redis.ts';
import { refuseCluster } from '../../workers/redis.ts';

/** What Redis answers to INFO. */
const answering = (isCluster: boolean) =>
  ({
    info: () =>
      Promise.resolve(
        `redis_version:7.2.0\r\nrole:master\r\n# Cluster\r\ncluster_enabled:${isCluster ? 1 : 0}\r\n`,
      ),
    ping: () => Promise.resolve('PONG'),
  }) as unknown as Redis;

test('intent-14 a Redis Cluster is refused at the start, with what to use instead', async () => {
  await expect(refuseCluster(answering(true))).rejects.toThrow(/Redis Cluster.*use a single master/);
  await expect(refuseCluster(answering(false))).resolves.toBeUndefined();
});

test('intent-14 doctor refuses a Redis Cluster', async () => {
  const [[, check]] = redisChecks(answering(true), () => Promise.resolve(), 0) as [
    [string, () => Promise<unknown>],
  ];
  expect(JSON.stringify(await check())).toMatch(/Redis Cluster/);
});

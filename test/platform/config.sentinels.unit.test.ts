/** The environment of a Redis behind sentinels. */
import { loadConfig } from '../../config/load.ts';
import { redisConnection, redisPlaceOf } from '../../config/redis.ts';
import type { Env } from './config-problems.ts';
import { PRODUCTION, problemsOf } from './config-problems.ts';

const SENTINELS: Env = {
  NOTIFICATION_REDIS_MASTER_ADDR: undefined,
  NOTIFICATION_REDIS_SENTINELS: 'rediss://one.internal:26379, rediss://two.internal:26380',
  NOTIFICATION_REDIS_SENTINEL_NAME: 'notifications',
  NOTIFICATION_REDIS_SENTINEL_PASSWORD: 'sentinels-s3cret-5b',
};
const PEM = '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n';

const optionsOf = (env: Env) => {
  const config = loadConfig(env, {}, () => PEM);
  return redisConnection(config, redisPlaceOf(config.values)!);
};

test('I91 I30 production takes sentinels in the place of the address, over TLS and with a password', () => {
  expect(problemsOf({ ...PRODUCTION, ...SENTINELS })).toEqual([]);
});

test('I91 the client asks the sentinels for the master, and shows both what it must', () => {
  const tls = { ca: PEM, cert: undefined, key: undefined };
  const options = optionsOf({
    ...PRODUCTION,
    ...SENTINELS,
    NOTIFICATION_REDIS_USER: 'notify-intent',
    NOTIFICATION_REDIS_SENTINEL_USER: 'notify-sentinel',
    NOTIFICATION_REDIS_CA_FILE: '/ca.pem',
  });
  expect(options).toMatchObject({
    sentinels: [
      { host: 'one.internal', port: 26_379 },
      { host: 'two.internal', port: 26_380 },
    ],
    name: 'notifications',
    ...{ username: 'notify-intent', password: PRODUCTION['NOTIFICATION_REDIS_PASSWORD'] },
    ...{ sentinelUsername: 'notify-sentinel', sentinelPassword: 'sentinels-s3cret-5b' },
    ...{ enableTLSForSentinelMode: true, tls, sentinelTLS: tls },
  });
  expect(options).not.toHaveProperty('host');
});

test('I91 without TLS for sentinels there is none for the master', () => {
  const options = optionsOf({
    NOTIFICATION_REDIS_SENTINELS: 'one:26379',
    NOTIFICATION_REDIS_SENTINEL_NAME: 'notifications',
  });
  expect(options).not.toHaveProperty('tls');
  expect(options).not.toHaveProperty('enableTLSForSentinelMode');
});

test.each<[what: string, env: Env, problem: RegExp]>([
  ['both', { NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379' }, /exclude each other/],
  ['no name', { NOTIFICATION_REDIS_SENTINEL_NAME: undefined }, /SENTINEL_NAME is required/],
  [
    'TLS with some of them',
    { NOTIFICATION_REDIS_SENTINELS: 'rediss://one:26379,two:26379', NOTIFICATION_INSECURE: 'redis' },
    /must all be rediss:/,
  ],
  [
    'a user without a password',
    {
      NOTIFICATION_REDIS_SENTINEL_USER: 'notify-sentinel',
      NOTIFICATION_REDIS_SENTINEL_PASSWORD: undefined,
      NOTIFICATION_INSECURE: 'redis',
    },
    /SENTINEL_USER needs NOTIFICATION_REDIS_SENTINEL_PASSWORD/,
  ],
  [
    'what is for sentinels alone, without any',
    {
      NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379',
      NOTIFICATION_REDIS_SENTINELS: undefined,
      NOTIFICATION_REDIS_SENTINEL_PASSWORD: undefined,
    },
    /SENTINEL_NAME needs NOTIFICATION_REDIS_SENTINELS/,
  ],
  [
    'files without TLS',
    {
      NOTIFICATION_REDIS_SENTINELS: 'one:26379',
      NOTIFICATION_INSECURE: 'redis',
      NOTIFICATION_REDIS_CA_FILE: import.meta.filename,
    },
    /NOTIFICATION_REDIS_SENTINELS must be rediss:.*no effect/,
  ],
])('I91 I30 %s: refused', (_, env, problem) => {
  expect(problemsOf({ ...PRODUCTION, ...SENTINELS, ...env })).toEqual([expect.stringMatching(problem)]);
});

/** The environment of a Redis behind sentinels. */
import { loadConfig } from '../../config/load.ts';
import { redisConnection, redisPlaceOf } from '../../config/redis.ts';
import type { Env } from './config-problems.ts';
import { PRODUCTION, problemsOf } from './config-problems.ts';

const LIST = 'NOTIFICATION_REDIS_SENTINELS';
const PASSWORD = 'NOTIFICATION_REDIS_SENTINEL_PASSWORD';
const SENTINELS: Env = {
  NOTIFICATION_REDIS_MASTER_ADDR: undefined,
  NOTIFICATION_REDIS_SENTINELS: 'rediss://one.internal:26379,two.internal:26380/notifications',
  NOTIFICATION_REDIS_SENTINEL_PASSWORD: 'sentinels-s3cret-5b',
};
const PEM = '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n';

const optionsOf = (env: Env) => {
  const config = loadConfig(env, () => PEM);
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
    NOTIFICATION_REDIS_SENTINELS:
      'rediss://notify-sentinel@one.internal:26379,two.internal:26380/notifications',
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

test('I91 without TLS for sentinels the master has no TLS', () => {
  const options = optionsOf({
    NOTIFICATION_REDIS_SENTINELS: 'one:26379/notifications',
  });
  expect(options).not.toHaveProperty('tls');
  expect(options).not.toHaveProperty('enableTLSForSentinelMode');
});

const OF_USER = 'rediss://notify-sentinel@one:26379/notifications';
const NO_SENTINELS = { NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379', [LIST]: undefined };
const PLAIN = { [LIST]: 'one:26379/notifications', NOTIFICATION_INSECURE: 'redis' };

test.each<[what: string, env: Env, problem: RegExp]>([
  ['both', { NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379' }, /exclude each other/],
  [
    'a user without a password',
    { [LIST]: OF_USER, [PASSWORD]: undefined, NOTIFICATION_INSECURE: 'redis' },
    /SENTINELS needs NOTIFICATION_REDIS_SENTINEL_PASSWORD/,
  ],
  [
    'what is for sentinels alone, without any',
    NO_SENTINELS,
    /SENTINEL_PASSWORD needs NOTIFICATION_REDIS_SENTINELS/,
  ],
  [
    'files without TLS',
    { ...PLAIN, NOTIFICATION_REDIS_CA_FILE: import.meta.filename },
    /NOTIFICATION_REDIS_SENTINELS must be rediss:.*no effect/,
  ],
  ['half a pair', { NOTIFICATION_REDIS_CERT_FILE: import.meta.filename }, /belong together/],
  ['a file that is away', { NOTIFICATION_REDIS_CA_FILE: '/none.pem' }, /CA_FILE cannot be read: ENOENT/],
  ['a file without a certificate', { NOTIFICATION_REDIS_CA_FILE: 'package.json' }, /must name a PEM file/],
])('I91 I30 %s: refused', (_, env, problem) => {
  expect(problemsOf({ ...PRODUCTION, ...SENTINELS, ...env })).toEqual([expect.stringMatching(problem)]);
});

test.each([
  'one:26379',
  'one:26379/',
  'one/notifications',
  'rediss://one:26379,rediss://two:26379/notifications',
  'one:26379,/notifications',
  'user:s3cret@one:26379/notifications',
])('I91 I30 the sentinels %s are refused, without what may be a password', (text) => {
  const problems = problemsOf({ NOTIFICATION_REDIS_SENTINELS: text });
  expect(problems).toEqual([expect.stringMatching(/^NOTIFICATION_REDIS_SENTINELS must be host:port,/)]);
  expect(problems.join()).not.toContain('s3cret');
});

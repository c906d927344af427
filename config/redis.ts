/** Configuration of Redis: where it is, how it is spoken to, and what is open about that. */
import type { Redis } from 'ioredis';
import { z } from 'zod';
import { given } from '../api/given.ts';
import type { RedisAddress, RedisPlace, ValuesOf } from './variables.ts';
import { duration, integer, list, pem, redisAddress, redisSentinels } from './variables.ts';
import { guessable, linesThat, plainRedisGaps } from './wire.ts';

const redisUser = z.string().regex(/^[\x21-\x7e]{1,100}$/, 'must be printable ASCII without spaces');

export const REDIS_VARIABLES = {
  NOTIFICATION_REDIS_MASTER_ADDR: redisAddress
    .describe(
      'Redis master, host:port, or rediss://host:port for TLS; or the sentinels below. Redis 7 or later, or Valkey.',
    )
    .meta({ requiredInProduction: true }),
  NOTIFICATION_REDIS_SENTINELS: redisSentinels.describe(
    'Sentinels that know the Redis master, and its name, in the place of its address: host:port,host:port/name, with user@ before the first host for an ACL user of theirs, and rediss:// before all for TLS with them and with the servers that they name.',
  ),
  NOTIFICATION_REDIS_SENTINEL_PASSWORD: z
    .string()
    .describe('Password of the sentinels.')
    .meta({ secret: true }),
  NOTIFICATION_REDIS_PASSWORD: z
    .string()
    .describe('Password of Redis.')
    .meta({ requiredInProduction: true, secret: true }),
  NOTIFICATION_REDIS_USER: redisUser.describe(
    'ACL user of Redis; without one, the default user. docs/deploy/redis.md has the rule for it.',
  ),
  NOTIFICATION_REDIS_REPLICA_ADDRS: list
    .pipe(z.array(redisAddress))
    .prefault('')
    .describe('Redis replicas, comma-separated; reserved, reads stay on the primary.'),
  NOTIFICATION_REDIS_CA_FILE: pem
    .describe('Authority that signed the certificate of Redis, PEM; without one, those that Node trusts.')
    .meta({ inFile: true }),
  NOTIFICATION_REDIS_CERT_FILE: pem
    .describe('Certificate to show to Redis, PEM, with its key below.')
    .meta({ inFile: true }),
  NOTIFICATION_REDIS_KEY_FILE: pem.describe('Private key of that certificate, PEM.').meta({ inFile: true }),
  NOTIFICATION_REDIS_DB: integer(0, 65_535).prefault('0').describe('Redis database number.'),
  NOTIFICATION_REDIS_OPERATION_TIMEOUT: duration.prefault('2s').describe('Time-out of one Redis command.'),
  NOTIFICATION_REDIS_MIN_REPLICAS: integer(0, 100)
    .prefault('0')
    .describe(
      'Replicas of Redis that must have what was handed off before its row says so; 0 waits for none.',
    ),
};

export type RedisValues = ValuesOf<typeof REDIS_VARIABLES>;

/** @returns undefined when nothing is configured. A value that was refused is undefined, too. */
export function redisPlaceOf(values: Partial<RedisValues>): RedisPlace | undefined {
  return values.NOTIFICATION_REDIS_SENTINELS ?? values.NOTIFICATION_REDIS_MASTER_ADDR;
}

/** The variable that says where it is. */
export const variableOf = (place: RedisPlace | undefined): string =>
  place && 'sentinels' in place ? 'NOTIFICATION_REDIS_SENTINELS' : 'NOTIFICATION_REDIS_MASTER_ADDR';

/** For people. */
export const nameOfPlace = (place: RedisPlace): string =>
  'sentinels' in place
    ? `Redis ${place.master} of the sentinels ${place.sentinels.map(nameOfAddress).join(', ')}`
    : `Redis at ${nameOfAddress(place)}`;

const nameOfAddress = ({ host, port }: RedisAddress) => `${host}:${port}`;

const hasTls = (place: RedisPlace): boolean =>
  'sentinels' in place ? place.sentinels.every(({ tls }) => tls) : place.tls === true;

/** What is fine alone and wrong together. What protects a connection must not be silently without effect. */
export function redisProblems(values: RedisValues): string[] {
  const isSet = (name: keyof RedisValues) => values[name] !== undefined;
  const [ca, cert, key] = (['CA', 'CERT', 'KEY'] as const).map((file) =>
    isSet(`NOTIFICATION_REDIS_${file}_FILE`),
  );
  const place = redisPlaceOf(values);
  const hasSentinels = isSet('NOTIFICATION_REDIS_SENTINELS');
  const hasSentinelPassword = isSet('NOTIFICATION_REDIS_SENTINEL_PASSWORD');
  return linesThat(
    [
      hasSentinelPassword && !hasSentinels,
      'NOTIFICATION_REDIS_SENTINEL_PASSWORD needs NOTIFICATION_REDIS_SENTINELS: without them it has no effect',
    ],
    [
      hasSentinels && isSet('NOTIFICATION_REDIS_MASTER_ADDR'),
      'NOTIFICATION_REDIS_MASTER_ADDR and NOTIFICATION_REDIS_SENTINELS exclude each other: sentinels say where the master is',
    ],
    [
      values.NOTIFICATION_REDIS_SENTINELS?.user !== undefined && !hasSentinelPassword,
      'NOTIFICATION_REDIS_SENTINELS needs NOTIFICATION_REDIS_SENTINEL_PASSWORD: a user is known by its password',
    ],
    [
      isSet('NOTIFICATION_REDIS_USER') && !isSet('NOTIFICATION_REDIS_PASSWORD'),
      'NOTIFICATION_REDIS_USER needs NOTIFICATION_REDIS_PASSWORD: a user is known by its password',
    ],
    [
      Boolean(ca || cert || key) && !(place && hasTls(place)),
      `${variableOf(place)} must be rediss://host:port: without TLS the files for it have no effect`,
    ],
    [cert !== key, 'NOTIFICATION_REDIS_CERT_FILE and NOTIFICATION_REDIS_KEY_FILE belong together: set both'],
  );
}

/** One line for each thing that is open. */
export function redisGaps(values: RedisValues): string[] {
  const { NOTIFICATION_REDIS_MASTER_ADDR: master, NOTIFICATION_REDIS_SENTINELS: sentinels } = values;
  const { NOTIFICATION_REDIS_SENTINEL_PASSWORD: sentinelPassword } = values;
  return [
    ...plainRedisGaps('NOTIFICATION_REDIS_MASTER_ADDR', master === undefined ? [] : [master]),
    ...plainRedisGaps('NOTIFICATION_REDIS_REPLICA_ADDRS', values.NOTIFICATION_REDIS_REPLICA_ADDRS),
    // A client of a sentinel can make another server the master.
    ...linesThat(
      [
        // On the loopback as well: the master that they name need not be there.
        sentinels !== undefined && !hasTls(sentinels),
        'NOTIFICATION_REDIS_SENTINELS must begin with rediss://: without TLS everything can be read and changed, on the way to the master, too',
      ],
      [
        sentinels !== undefined && sentinelPassword === undefined,
        'NOTIFICATION_REDIS_SENTINEL_PASSWORD must be set: the sentinels cannot tell who calls',
      ],
    ),
    ...guessable('NOTIFICATION_REDIS_SENTINEL_PASSWORD', sentinelPassword),
    ...guessable('NOTIFICATION_REDIS_PASSWORD', values.NOTIFICATION_REDIS_PASSWORD),
  ];
}

interface HasRedisValues {
  values: RedisValues;
}

/** What TLS is made of. An explicit undefined is a value to the client, though not to TLS. */
const tlsOf = ({ values }: HasRedisValues) => ({
  ca: values.NOTIFICATION_REDIS_CA_FILE,
  cert: values.NOTIFICATION_REDIS_CERT_FILE,
  key: values.NOTIFICATION_REDIS_KEY_FILE,
});

/**
 * Options of a Redis client for one place.
 *
 * Without an authority in the configuration, TLS trusts what Node trusts; the name in the certificate is always checked.
 * With sentinels the client asks each of them in turn where the master is, whenever it connects, and leaves a server that
 * is not the master. It makes one round: a client that stays connected adds a `sentinelRetryStrategy`.
 */
export function redisConnection(config: HasRedisValues, place: RedisPlace) {
  const { NOTIFICATION_REDIS_USER: username, NOTIFICATION_REDIS_PASSWORD: password } = config.values;
  const tls = hasTls(place) ? tlsOf(config) : undefined;
  const credentials = given({ username, password, tls });
  if (!('sentinels' in place)) return { host: place.host, port: place.port, ...credentials };
  const { NOTIFICATION_REDIS_SENTINEL_PASSWORD: key } = config.values;
  return {
    ...credentials,
    sentinels: place.sentinels.map(({ host, port }) => ({ host, port })),
    name: place.master,
    ...given({ sentinelUsername: place.user, sentinelPassword: key }),
    ...(tls === undefined ? {} : { enableTLSForSentinelMode: true, sentinelTLS: tls }),
    sentinelCommandTimeout: config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    sentinelRetryStrategy: () => null,
    // Those that are configured have names that certificates are for; what they know of each other are addresses.
    updateSentinels: false,
  };
}

/** Options of a client that speaks to one sentinel itself. */
export function sentinelConnection(config: HasRedisValues, { host, port, tls }: RedisAddress) {
  const { NOTIFICATION_REDIS_SENTINELS: place, NOTIFICATION_REDIS_SENTINEL_PASSWORD: password } =
    config.values;
  return given({ host, port, username: place?.user, password, tls: tls && tlsOf(config) });
}

/**
 * Listens from now on for what keeps a client from connecting: what its commands reject with says only that the connection
 * is closed.
 *
 * @returns the last reason, or undefined.
 */
export function reasonsOf(redis: Redis): () => Error | undefined {
  let last: Error | undefined;
  let isUnknown = false;
  redis.on('error', (error: Error) => (last = error));
  redis.on('sentinelError', ({ message }: Error) => (isUnknown ||= message.endsWith('invalid reply: null')));
  return () => {
    if (!last?.message.startsWith('All sentinels are unreachable')) return last;
    // Why each of them does not answer is not told.
    return new Error(
      isUnknown
        ? 'the sentinels know no master of the name at the end of NOTIFICATION_REDIS_SENTINELS'
        : 'no sentinel answers, or none takes the password; galaxy-notify doctor asks each of them',
    );
  };
}

/** Why neither the service nor the command line can use a Redis Cluster. */
export const NO_CLUSTER =
  'it is a Redis Cluster, and the scripts of a hand-off need keys of several slots: use a single master, with replicas and sentinels if it must not be alone';

/** @param info what Redis answers to INFO. */
export const isCluster = (info: string): boolean => /^cluster_enabled:1/m.test(info);

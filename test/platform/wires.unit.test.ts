/** Connections: what production refuses to leave open and how that is allowed, secrets in files, Redis behind sentinels. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { given } from '../../api/given.ts';
import { diagnoseWires } from '../../cli/doctor.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../config/caller.ts';
import { loadConfig, loadOperatorConfig } from '../../config/load.ts';
import { redisConnection, redisPlaceOf } from '../../config/redis.ts';
import { openWires, weaknessOfKey, weaknessOfSecret } from '../../config/wire.ts';
import { scratchFolder } from '../scratch.ts';
import type { Env } from './config-problems.ts';
import { PRODUCTION, problemsOf } from './config-problems.ts';

const scratch = scratchFolder('wires');

const targetsFile = (name: string, url: string) =>
  scratch.write(name, JSON.stringify([{ name: 'eu', kind: 'price_alert', geo: 'eu', url }]));

const randomKey = () => randomBytes(32);
const signingSecret = () => `whsec_${randomBytes(32).toString('base64')}`;
const sealingKey = (key: Buffer, id = 'k') => `${id}:${key.toString('base64')}`;
const SYMBOLS = {
  NOTIFICATION_ROLES: 'symbol-config',
  NOTIFICATION_SYMBOL_TARGETS_FILE: targetsFile('good.json', 'https://alert.internal/symbols'),
  NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS: signingSecret(),
};
const PORTFOLIO = {
  NOTIFICATION_ROLES: 'account-callback',
  NOTIFICATION_PORTFOLIO_BASE_URL: 'https://portfolios.internal',
  NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: signingSecret(),
};
const CODEC = {
  NOTIFICATION_PAYLOAD_KEYS: sealingKey(randomKey()),
  NOTIFICATION_CODEC_HTTP_ADDR: '127.0.0.1:8091',
  NOTIFICATION_CODEC_JWKS_URL: 'https://login.internal/keys',
  NOTIFICATION_CODEC_ISSUER: 'login',
  NOTIFICATION_CODEC_AUDIENCE: 'ui',
};
const OTLP = {
  OTEL_EXPORTER_OTLP_ENDPOINT: 'https://otlp.internal',
  OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20x',
};
const LIST = 'NOTIFICATION_REDIS_SENTINELS';
const SENTINEL_PASSWORD = 'NOTIFICATION_REDIS_SENTINEL_PASSWORD';
const SENTINELS: Env = {
  NOTIFICATION_REDIS_MASTER_ADDR: undefined,
  [LIST]: 'rediss://one.internal:26379,two.internal:26380/notifications',
  [SENTINEL_PASSWORD]: 'sentinels-s3cret-5b',
};
const PEM = '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n';
const PRIMARY = 'NOTIFICATION_POSTGRES_PRIMARY_DSN';
const PLAIN_TARGETS = targetsFile('plain.json', 'http://alert/symbols');
const PORTFOLIO_SECRETS = 'NOTIFICATION_PORTFOLIO_SIGNING_SECRETS';
const DSN = 'postgres://notify:pg-s3cret-71be0d42@db.internal/notification';

/** By connection: a variable, a value that leaves the connection open, and what stands beside it. */
test.each<[connection: string, named: string, value: string | undefined, beside?: Env]>([
  ['redis', 'NOTIFICATION_REDIS_MASTER_ADDR', 'redis:6379'],
  ['redis', 'NOTIFICATION_REDIS_REPLICA_ADDRS', 'redis:6380'],
  ['redis', 'NOTIFICATION_REDIS_PASSWORD', 'aaaaaaaaaaaaaaaa'],
  ['redis', LIST, '127.0.0.1:26379/notifications', SENTINELS],
  ['redis', SENTINEL_PASSWORD, undefined, SENTINELS],
  ['redis', SENTINEL_PASSWORD, '123456789', SENTINELS],
  ['postgres', PRIMARY, DSN],
  ['postgres', PRIMARY, `${DSN}?sslmode=no-verify`],
  ['postgres', PRIMARY, `${DSN}?uselibpqcompat=true&sslmode=require`],
  ['postgres', PRIMARY, 'postgres://notify@db/n?sslmode=verify-full'],
  ['postgres', PRIMARY, 'postgres://notify:galaxy2024%21@db/n?sslmode=verify-full'],
  ['postgres', 'NOTIFICATION_POSTGRES_REPLICA_DSNS', DSN],
  ['temporal', 'TEMPORAL_TLS', 'false'],
  ['temporal', 'TEMPORAL_TLS_DISABLE_HOST_VERIFICATION', 'true'],
  ['temporal', 'TEMPORAL_API_KEY', undefined],
  ['user-service', 'NOTIFICATION_USER_SERVICE_BASE_URL', 'http://users:8080'],
  ['user-service', 'NOTIFICATION_USER_SERVICE_TOKEN', undefined],
  ['user-service', 'NOTIFICATION_USER_SERVICE_TOKEN', '0123456789abcdef'],
  ['portfolio', 'NOTIFICATION_PORTFOLIO_BASE_URL', 'http://portfolios', PORTFOLIO],
  ['portfolio', PORTFOLIO_SECRETS, undefined, PORTFOLIO],
  ['portfolio', PORTFOLIO_SECRETS, DEVELOPMENT_SIGNING_SECRET, PORTFOLIO],
  ['portfolio', PORTFOLIO_SECRETS, `whsec_${'A'.repeat(32)}`, PORTFOLIO],
  ['symbol-targets', 'NOTIFICATION_SYMBOL_TARGETS_FILE', PLAIN_TARGETS, SYMBOLS],
  ['symbol-targets', 'NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS', undefined, SYMBOLS],
  ['codec', 'NOTIFICATION_CODEC_HTTP_ADDR', ':8091', CODEC],
  ['codec', 'NOTIFICATION_CODEC_JWKS_URL', 'http://login.internal/keys', CODEC],
  ['otel', 'OTEL_EXPORTER_OTLP_ENDPOINT', 'http://otlp:4318', OTLP],
  ['otel', 'OTEL_EXPORTER_OTLP_HEADERS', undefined, OTLP],
])(
  'security-10 security-13 production leaves %s not open by %s=%s, names the variable, and takes it when it is told to',
  (connection, named, value, ...[beside]) => {
    const env = { ...PRODUCTION, ...beside, [named]: value };
    const [problem, ...others] = problemsOf(env);
    expect(others).toEqual([]);
    expect(problem).toMatch(new RegExp(`^${named} .*NOTIFICATION_INSECURE=${connection} `));
    expect(problem).not.toMatch(/s3cret|whsec_A|aaaaaaaa/);
    const { wires } = loadConfig({ ...env, NOTIFICATION_INSECURE: connection });
    expect(openWires(wires)).toEqual([expect.objectContaining({ connection, isAllowed: true })]);
    expect(problemsOf({ ...env, NODE_ENV: 'development' })).toEqual([]);
  },
);

test('security-10 everything that is open is named together', () => {
  const open = { NOTIFICATION_REDIS_MASTER_ADDR: 'redis:6379', TEMPORAL_TLS: 'false', [PRIMARY]: DSN };
  expect(problemsOf({ ...PRODUCTION, ...open })).toHaveLength(3);
});

const [CERT, KEY] = [scratch.write('cert.pem', PEM), scratch.write('key.pem', PEM)];
const BY_CERT = { NOTIFICATION_USER_SERVICE_TOKEN: undefined, NOTIFICATION_HTTP_CERT_FILE: CERT };
const ALLOWED = { NOTIFICATION_INSECURE: 'redis' };
const CA = 'NOTIFICATION_REDIS_CA_FILE';
const ADDRESS = { ...SENTINELS, NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis:6379' };
const ON_LOOPBACK = {
  NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:6379',
  NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://notify:pg-s3cret-71be0d42@localhost/notification',
  NOTIFICATION_USER_SERVICE_BASE_URL: 'http://localhost:8080',
  OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318',
};

test.each<[what: string, env: Env]>([
  ['security-10 plain connections of the machine', ON_LOOPBACK],
  ['security-10 a socket of PostgreSQL', { [PRIMARY]: 'postgresql:///notification?host=/run/postgresql' }],
  ['security-10 a client certificate in place of a token', { ...BY_CERT, NOTIFICATION_HTTP_KEY_FILE: KEY }],
  ['security-9 certificates that Node checks', { NODE_TLS_REJECT_UNAUTHORIZED: '1' }],
  ['security-9 unchecked ones elsewhere', { NODE_ENV: 'development', NODE_TLS_REJECT_UNAUTHORIZED: '0' }],
  ['bug-P4 a proxy that is empty', { HTTPS_PROXY: '' }],
  ['security-12 a user of Redis with a password', { NOTIFICATION_REDIS_USER: 'notify' }],
  ['I91 I30 sentinels in the place of the address, over TLS and with a password', SENTINELS],
])('%s: production takes it', (_, env) => expect(problemsOf({ ...PRODUCTION, ...env })).toEqual([]));

test.each<[what: string, env: Env, problem: RegExp]>([
  ['security-9 unchecked certificates', { NODE_TLS_REJECT_UNAUTHORIZED: '0' }, /^NODE_TLS\w* must not be 0:/],
  ...['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy', 'grpc_proxy'].map(
    (name): [string, Env, RegExp] => [
      `bug-P4 ${name}`,
      { [name]: 'http://a:1' },
      RegExp(`^${name} must not be`),
    ],
  ),
  ['security-10 a client certificate alone', BY_CERT, /_CERT_FILE and NOTIFICATION_HTTP_KEY_FILE belong/],
  ['I91 sentinels and an address', ADDRESS, /exclude each other/],
  [
    'I91 a user of sentinels without a password',
    { ...SENTINELS, ...ALLOWED, [LIST]: 'rediss://user@one:26379/n', [SENTINEL_PASSWORD]: undefined },
    /SENTINELS needs NOTIFICATION_REDIS_SENTINEL_PASSWORD/,
  ],
  [
    'I91 a password of no sentinels',
    { ...ADDRESS, [LIST]: undefined },
    /SENTINEL_PASSWORD needs \w+_SENTINELS/,
  ],
  [
    'I91 files of Redis without TLS',
    { ...SENTINELS, ...ALLOWED, [LIST]: 'one:26379/notifications', [CA]: CERT },
    /NOTIFICATION_REDIS_SENTINELS must be rediss:.*no effect/,
  ],
  ['I91 half a pair of Redis', { ...SENTINELS, NOTIFICATION_REDIS_CERT_FILE: CERT }, /belong together/],
  ['I91 a file that is away', { ...SENTINELS, [CA]: '/none.pem' }, /CA_FILE cannot be read: ENOENT/],
  ['I91 a file without a certificate', { ...SENTINELS, [CA]: 'package.json' }, /must name a PEM file/],
])('%s: production refuses it, and nothing allows it', (_, env, problem) => {
  expect(problemsOf({ ...PRODUCTION, ...env })).toEqual([expect.stringMatching(problem)]);
});

test('security-10 the key that seals must be random, the ones behind it may still open', () => {
  const zero = Buffer.alloc(32);
  for (const name of ['NOTIFICATION_PAYLOAD_KEYS', 'NOTIFICATION_SUBSCRIPTION_KEYS']) {
    const env: Env = {
      ...PRODUCTION,
      NOTIFICATION_ROLES: 'intent,subscription',
      NOTIFICATION_SUBSCRIPTION_KEYS: sealingKey(randomKey()),
      NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: `ntf://${Buffer.alloc(32, 7).toString('base64url')}@ntf.internal`,
    };
    const weak = problemsOf({ ...env, [name]: sealingKey(zero) });
    expect(weak).toEqual([expect.stringContaining(`${name} begins with a key that can be guessed`)]);
    expect(weak[0]).not.toContain(zero.toString('base64').slice(0, 8));
    expect(problemsOf({ ...env, [name]: `${sealingKey(randomKey(), 'n')},${sealingKey(zero)}` })).toEqual([]);
  }
});

test('security-10 random keys and tokens are never called weak', () => {
  const isCalledWeak = (key: Buffer) =>
    weaknessOfKey(key) ??
    weaknessOfSecret(key.toString('hex').slice(0, 32)) ??
    weaknessOfSecret(key.toString('base64url').slice(0, 22));
  expect(Array.from({ length: 20_000 }, randomKey).filter(isCalledWeak)).toEqual([]);
});

test('security-10 security-13 what can be guessed is called weak: tokens and passwords, keys without chance in them', () => {
  const repeated = ['aaaaaaaaaaaaaaaa', 'abababababababab', 'changemechangeme', 'aaaaaaaaaaaaaaab'];
  const counted = ['0123456789abcdef', 'zyxwvutsrqponmlk'];
  const words = ['', 'short', 'redis', 'galaxy2024!', 'replace-notify-intent'];
  const secrets = [...repeated, ...counted, ...words, 'replace-with-a-long-password-7f31'];
  expect(secrets.filter((secret) => weaknessOfSecret(secret) === undefined)).toEqual([]);
  const counting = Buffer.from(Array.from({ length: 32 }, (_, at) => at));
  const keys = [Buffer.alloc(32), Buffer.alloc(32, 'ab'), counting, Buffer.alloc(32, 'secret42')];
  expect(keys.filter((key) => weaknessOfKey(key) === undefined)).toEqual([]);
});

const OPEN_REDIS = { ...PRODUCTION, NOTIFICATION_REDIS_MASTER_ADDR: 'redis:6379' };
const TO_DO = expect.stringContaining('NOTIFICATION_REDIS_MASTER_ADDR must be rediss://') as string;

test.each<[status: string, env: Env, detail: RegExp, hint?: string]>([
  ['ok', PRODUCTION, /^/],
  [
    'ok',
    { ...OPEN_REDIS, NODE_ENV: 'test', NOTIFICATION_ROLES: 'intent' },
    /, which production refuses: Redis$/,
  ],
  ['warn', { ...OPEN_REDIS, ...ALLOWED }, /^1 of 4 connections open, by NOTIFICATION_INSECURE=redis$/, TO_DO],
  [
    'warn',
    { ...PRODUCTION, ...ALLOWED },
    /^/,
    'take redis out of NOTIFICATION_INSECURE: nothing needs it any more',
  ],
  ['error', OPEN_REDIS, /^1 of 4 connections open: the service refuses to start$/, TO_DO],
])(
  'security-10 doctor says %s of what is open, why, and what needs no leave any more',
  (status, env, detail, ...[hint]) => {
    const found = diagnoseWires(loadOperatorConfig(env));
    expect(found).toMatchObject({ status, detail: expect.stringMatching(detail), ...given({ hint }) });
  },
);

test('I91 the client asks the sentinels for the master, and shows both what it must', () => {
  const tls = { ca: PEM, cert: undefined, key: undefined };
  const options = redisOptions({
    ...{ ...PRODUCTION, ...SENTINELS, [CA]: '/ca.pem', NOTIFICATION_REDIS_USER: 'notify-intent' },
    [LIST]: 'rediss://notify-sentinel@one.internal:26379,two.internal:26380/notifications',
  });
  expect(options).toMatchObject({
    sentinels: [
      { host: 'one.internal', port: 26_379 },
      { host: 'two.internal', port: 26_380 },
    ],
    ...{ name: 'notifications', enableTLSForSentinelMode: true, tls, sentinelTLS: tls },
    ...{ username: 'notify-intent', password: PRODUCTION['NOTIFICATION_REDIS_PASSWORD'] },
    ...{ sentinelUsername: 'notify-sentinel', sentinelPassword: 'sentinels-s3cret-5b' },
  });
  expect(options).not.toHaveProperty('host');
  const plain = redisOptions({ [LIST]: 'one:26379/notifications' });
  expect(plain).not.toHaveProperty('tls');
  expect(plain).not.toHaveProperty('enableTLSForSentinelMode');
});

function redisOptions(env: Env) {
  const config = loadConfig(env, () => PEM);
  return redisConnection(config, redisPlaceOf(config.values)!);
}

describe('secrets in files', () => {
  const FILE = 'NOTIFICATION_REDIS_PASSWORD_FILE';
  const { NOTIFICATION_REDIS_PASSWORD: _, TEMPORAL_API_KEY: _key, ...withoutPassword } = PRODUCTION;
  const missing = path.join(scratch.dir, 'missing');
  const fileOf = scratch.write;

  test('I30 a secret is read from the file that its variable with _FILE names', () => {
    const { values, temporalEnv } = loadConfig({
      ...{ ...withoutPassword, [FILE]: fileOf('redis', 's3cret with space \n') },
      TEMPORAL_API_KEY_FILE: fileOf('temporal', 'key'),
    });
    expect(values.NOTIFICATION_REDIS_PASSWORD).toBe('s3cret with space ');
    expect(temporalEnv['TEMPORAL_API_KEY']).toBe('key');
  });

  const [empty, both, dsn] = [
    fileOf('empty', '\n'),
    fileOf('both', 'other'),
    fileOf('dsn', 'mysql://n:s3cret@db/n'),
  ];
  test.each<[what: string, env: Env, problem: RegExp]>([
    ['is missing', { [FILE]: missing }, /^NOTIFICATION_REDIS_PASSWORD_FILE cannot be read: ENOENT.*missing/],
    ['is empty', { [FILE]: empty }, /^NOTIFICATION_REDIS_PASSWORD_FILE names an empty file: .*empty$/],
    ['has a wrong value', { [`${PRIMARY}_FILE`]: dsn }, /^NOTIFICATION_POSTGRES_PRIMARY_DSN /],
    [
      'stands beside the variable itself',
      { NOTIFICATION_REDIS_PASSWORD: 'x', [FILE]: both },
      /^NOTIFICATION_REDIS_PASSWORD and NOTIFICATION_REDIS_PASSWORD_FILE are both set: keep one of them$/,
    ],
  ])('I30 a file that %s is named, and no secret shown', (_what, env, problem) => {
    const problems = problemsOf(env);
    expect(problems).toEqual([expect.stringMatching(problem)]);
    expect(problems[0]).not.toContain('s3cret');
  });

  test('I60 certificates of Temporal are read with the rest, and what is in files can be read again', () => {
    const [password, certificate] = [
      fileOf('password', 'the first password'),
      fileOf('c.pem', 'a certificate'),
    ];
    const config = loadConfig({
      ...{ ...withoutPassword, NOTIFICATION_INSECURE: 'temporal', [FILE]: password },
      ...{ TEMPORAL_TLS_CLIENT_CERT_PATH: certificate, TEMPORAL_TLS_CLIENT_KEY_PATH: missing },
    });
    // Of a file that is missing, Temporal's SDK says what is wrong.
    expect(config.temporalEnv).toMatchObject({
      ...{ TEMPORAL_TLS_CLIENT_CERT_DATA: 'a certificate', TEMPORAL_TLS_CLIENT_KEY_PATH: missing },
    });
    expect(config.temporalEnv).not.toHaveProperty('TEMPORAL_TLS_CLIENT_CERT_PATH');
    expect(config.files.map(({ variable, path: file, text }) => [variable, file, text])).toEqual([
      [FILE, password, 'the first password'],
      ['TEMPORAL_TLS_CLIENT_CERT_PATH', certificate, 'a certificate'],
      ['TEMPORAL_TLS_CLIENT_KEY_PATH', missing, undefined],
    ]);
    const next = config.reread((_file, variable) => `new ${variable}`);
    expect(next.values.NOTIFICATION_REDIS_PASSWORD).toBe(`new ${FILE}`);
    expect(config.values.NOTIFICATION_REDIS_PASSWORD).toBe('the first password');
  });
});

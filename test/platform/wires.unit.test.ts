/** What production refuses to leave open, how that is allowed, and how it is said. */
import { randomBytes } from 'node:crypto';
import { diagnoseWires } from '../../cli/doctor.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../config/caller.ts';
import { loadConfig, loadOperatorConfig } from '../../config/load.ts';
import { openWires, weaknessOfKey, weaknessOfSecret } from '../../config/wire.ts';
import { scratchFolder } from '../scratch.ts';
import type { Env } from './config-problems.ts';
import { PRODUCTION, problemsOf } from './config-problems.ts';

const scratch = scratchFolder('wires');

const target = (url: string) => ({ name: 'eu', kind: 'price_alert', geo: 'eu', url });
const targetsFile = (name: string, url: string) => scratch.write(name, JSON.stringify([target(url)]));

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
const SENTINELS = {
  NOTIFICATION_REDIS_MASTER_ADDR: undefined,
  NOTIFICATION_REDIS_SENTINELS: 'rediss://sentinel:26379/notifications',
  NOTIFICATION_REDIS_SENTINEL_PASSWORD: 'sentinels-s3cret-5b',
};
const PRIMARY = 'NOTIFICATION_POSTGRES_PRIMARY_DSN';
const PORTFOLIO_SECRETS = 'NOTIFICATION_PORTFOLIO_SIGNING_SECRETS';
const DSN = 'postgres://notify:pg-s3cret-71be0d42@db.internal/notification';

type Open = [what: string, named: string, value: string | undefined, beside?: Env];

/** By connection: a value that leaves it open, and what stands beside it. */
const OPEN_OF: Record<string, Open[]> = {
  redis: [
    ['plain Redis', 'NOTIFICATION_REDIS_MASTER_ADDR', 'redis:6379'],
    ['a plain replica of Redis', 'NOTIFICATION_REDIS_REPLICA_ADDRS', 'redis:6380'],
    ['a weak password of Redis', 'NOTIFICATION_REDIS_PASSWORD', 'aaaaaaaaaaaaaaaa'],
    ['sentinels without TLS', 'NOTIFICATION_REDIS_SENTINELS', '127.0.0.1:26379/notifications', SENTINELS],
    ['sentinels without a password', 'NOTIFICATION_REDIS_SENTINEL_PASSWORD', undefined, SENTINELS],
    ['a weak password of sentinels', 'NOTIFICATION_REDIS_SENTINEL_PASSWORD', '123456789', SENTINELS],
  ],
  postgres: [
    ['plain PostgreSQL', PRIMARY, DSN],
    ['unchecked PostgreSQL', PRIMARY, `${DSN}?sslmode=no-verify`],
    ['PostgreSQL under any name', PRIMARY, `${DSN}?uselibpqcompat=true&sslmode=require`],
    ['PostgreSQL without a password', PRIMARY, 'postgres://notify@db/n?sslmode=verify-full'],
    [
      'security-13 a weak password of PostgreSQL',
      PRIMARY,
      'postgres://notify:galaxy2024%21@db/n?sslmode=verify-full',
    ],
    ['a plain replica of PostgreSQL', 'NOTIFICATION_POSTGRES_REPLICA_DSNS', DSN],
  ],
  temporal: [
    ['plain Temporal', 'TEMPORAL_TLS', 'false'],
    ['unchecked Temporal', 'TEMPORAL_TLS_DISABLE_HOST_VERIFICATION', 'true'],
    ['no credential for Temporal', 'TEMPORAL_API_KEY', undefined],
  ],
  'user-service': [
    ['a plain User Service', 'NOTIFICATION_USER_SERVICE_BASE_URL', 'http://users:8080'],
    ['no credential for the User Service', 'NOTIFICATION_USER_SERVICE_TOKEN', undefined],
    ['a weak token for the User Service', 'NOTIFICATION_USER_SERVICE_TOKEN', '0123456789abcdef'],
  ],
  portfolio: [
    ['a plain portfolio service', 'NOTIFICATION_PORTFOLIO_BASE_URL', 'http://portfolios', PORTFOLIO],
    ['unsigned callbacks', PORTFOLIO_SECRETS, undefined, PORTFOLIO],
    ["callbacks with everybody's secret", PORTFOLIO_SECRETS, DEVELOPMENT_SIGNING_SECRET, PORTFOLIO],
    ['callbacks with a weak secret', PORTFOLIO_SECRETS, `whsec_${'A'.repeat(32)}`, PORTFOLIO],
  ],
  'symbol-targets': [
    [
      'a plain symbol target',
      'NOTIFICATION_SYMBOL_TARGETS_FILE',
      targetsFile('plain.json', 'http://alert/symbols'),
      SYMBOLS,
    ],
    ['unsigned symbols', 'NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS', undefined, SYMBOLS],
  ],
  codec: [
    ['a codec server for all', 'NOTIFICATION_CODEC_HTTP_ADDR', ':8091', CODEC],
    [
      'keys of the codec server that anybody may answer with',
      'NOTIFICATION_CODEC_JWKS_URL',
      'http://login.internal/keys',
      CODEC,
    ],
  ],
  otel: [
    ['a plain collector', 'OTEL_EXPORTER_OTLP_ENDPOINT', 'http://otlp:4318', OTLP],
    ['no credential for the collector', 'OTEL_EXPORTER_OTLP_HEADERS', undefined, OTLP],
  ],
};
const OPEN = Object.entries(OPEN_OF).flatMap(([connection, rows]) =>
  rows.map(([what, named, value, beside]) => ({
    ...{ what, named, connection },
    open: { ...beside, [named]: value },
  })),
);

test.each(OPEN)(
  'security-10 production refuses $what, names the variable, and takes it when it is told to',
  ({ open, named, connection }) => {
    const env = { ...PRODUCTION, ...open };
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
  const all = { ...PRODUCTION, ...SYMBOLS, ...PORTFOLIO, ...CODEC, ...OTLP, NOTIFICATION_ROLES: '' };
  const roles = 'intent,symbol-config,account-callback';
  expect(problemsOf({ ...all, NOTIFICATION_ROLES: roles })).toEqual([]);
  const open = OPEN.filter(({ what }) => what.includes('plain ') && !what.includes('replica')).map(
    (row) => row.open,
  );
  const env = Object.assign({}, all, ...open, { NOTIFICATION_ROLES: roles }) as Env;
  expect(problemsOf(env)).toHaveLength(open.length);
});

test('security-10 what stays on the machine may be plain', () => {
  expect(
    problemsOf({
      ...PRODUCTION,
      NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:6379',
      NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://notify:pg-s3cret-71be0d42@localhost/notification',
      NOTIFICATION_USER_SERVICE_BASE_URL: 'http://localhost:8080',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318',
    }),
  ).toEqual([]);
  const socket = { NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgresql:///notification?host=/run/postgresql' };
  expect(problemsOf({ ...PRODUCTION, ...socket })).toEqual([]);
});

test('security-9 certificates that Node does not check stop the start in production, and nothing allows them', () => {
  const unchecked = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };
  expect(problemsOf({ ...PRODUCTION, ...unchecked })).toEqual([
    'NODE_TLS_REJECT_UNAUTHORIZED must not be 0: each server that the process calls may be any',
  ]);
  expect(problemsOf({ ...PRODUCTION, NODE_TLS_REJECT_UNAUTHORIZED: '1' })).toEqual([]);
  expect(problemsOf(unchecked)).toEqual([]);
});

test.each(['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy', 'grpc_proxy'])(
  'bug-P4 a proxy in %s, which only some connections would use, stops the start in production',
  (name) => {
    expect(problemsOf({ ...PRODUCTION, [name]: 'http://proxy.example:3128' })).toEqual([
      `${name} must not be set: some libraries would use the proxy, most connections would not`,
    ]);
    expect(problemsOf({ ...PRODUCTION, [name]: '' })).toEqual([]);
  },
);

test('security-10 a client certificate proves as much as a token', () => {
  const pem = (name: string) => scratch.write(name, '-----BEGIN X-----\n');
  const [cert, key] = [pem('cert.pem'), pem('key.pem')];
  const users = { NOTIFICATION_USER_SERVICE_TOKEN: undefined, NOTIFICATION_HTTP_CERT_FILE: cert };
  expect(problemsOf({ ...PRODUCTION, ...users, NOTIFICATION_HTTP_KEY_FILE: key })).toEqual([]);
  expect(problemsOf({ ...PRODUCTION, ...users })).toEqual([
    'NOTIFICATION_HTTP_CERT_FILE and NOTIFICATION_HTTP_KEY_FILE belong together: set both',
  ]);
});

test('security-12 a user of Redis is known by its password', () => {
  expect(problemsOf({ NOTIFICATION_REDIS_USER: 'notify' })).toEqual([
    expect.stringMatching(/^NOTIFICATION_REDIS_USER needs NOTIFICATION_REDIS_PASSWORD/),
  ]);
  expect(problemsOf({ ...PRODUCTION, NOTIFICATION_REDIS_USER: 'notify' })).toEqual([]);
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
    expect(weak).toEqual([
      expect.stringMatching(new RegExp(`^${name} begins with a key that can be guessed`)),
    ]);
    expect(weak[0]).not.toContain(zero.toString('base64').slice(0, 8));
    expect(problemsOf({ ...env, [name]: `${sealingKey(randomKey(), 'n')},${sealingKey(zero)}` })).toEqual([]);
  }
});

describe('strength', () => {
  test('security-10 random keys and tokens are never called weak', () => {
    const isCalledWeak = (key: Buffer) =>
      weaknessOfKey(key) ??
      weaknessOfSecret(key.toString('hex').slice(0, 32)) ??
      weaknessOfSecret(key.toString('base64url').slice(0, 22));
    expect(Array.from({ length: 20_000 }, () => randomBytes(32)).filter(isCalledWeak)).toEqual([]);
  });

  test('security-10 security-13 tokens and passwords that can be guessed are called weak', () => {
    const repeated = ['aaaaaaaaaaaaaaaa', 'abababababababab', 'changemechangeme', 'aaaaaaaaaaaaaaab'];
    const counted = ['0123456789abcdef', 'zyxwvutsrqponmlk'];
    const words = ['', 'short', 'redis', 'galaxy2024!', 'replace-notify-intent'];
    const secrets = [...repeated, ...counted, ...words, 'replace-with-a-long-password-7f31'];
    expect(secrets.filter((secret) => weaknessOfSecret(secret) === undefined)).toEqual([]);
  });

  test('security-10 keys without chance in them can be guessed', () => {
    const counting = Buffer.from(Array.from({ length: 32 }, (_, at) => at));
    for (const key of [Buffer.alloc(32), Buffer.alloc(32, 'ab'), counting, Buffer.alloc(32, 'secret42')]) {
      expect(weaknessOfKey(key)).toBeDefined();
    }
  });
});

describe('doctor', () => {
  const diagnosisOf = (env: Env) => diagnoseWires(loadOperatorConfig(env));

  test('security-10 it says what is open, why, and what needs no leave any more', () => {
    expect(diagnosisOf(PRODUCTION)).toMatchObject({ status: 'ok' });
    const open = { ...PRODUCTION, NOTIFICATION_REDIS_MASTER_ADDR: 'redis:6379' };
    expect(diagnosisOf({ ...open, NOTIFICATION_INSECURE: 'redis' })).toEqual({
      status: 'warn',
      detail: '1 of 4 connections open, by NOTIFICATION_INSECURE=redis',
      hint: expect.stringContaining('NOTIFICATION_REDIS_MASTER_ADDR must be rediss://') as string,
    });
    expect(diagnosisOf(open)).toEqual({
      status: 'error',
      detail: '1 of 4 connections open: the service refuses to start',
      hint: expect.stringContaining('NOTIFICATION_REDIS_MASTER_ADDR must be rediss://') as string,
    });
    expect(diagnosisOf({ ...PRODUCTION, NOTIFICATION_INSECURE: 'redis' })).toMatchObject({
      status: 'warn',
      hint: 'take redis out of NOTIFICATION_INSECURE: nothing needs it any more',
    });
    expect(diagnosisOf({ ...open, NODE_ENV: 'development', NOTIFICATION_ROLES: 'intent' })).toMatchObject({
      status: 'ok',
      detail: '1 of 4 connections open, which production refuses: Redis',
    });
  });
});

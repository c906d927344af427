/** The environment: names, defaults, checks of each value, and `.env.example`. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { z } from 'zod';
import { parseDuration, parseFuture, parseTime } from '../../cli/options.ts';
import { ROLE_NAMES, VARIABLES, loadConfig } from '../../config/load.ts';
import { OTEL_FIXED } from '../../config/service.ts';
import { defaultOf } from '../../config/variables.ts';
import { temporalMetrics } from '../../workers/telemetry.ts';
import { ADMIN_EMAIL_VARIABLES, ADMIN_NOTIFICATION_TYPES } from '../intent/galaxy.ts';
import type { Env } from './config-problems.ts';
import { PRODUCTION, REQUIRED, problemsOf } from './config-problems.ts';

type Name = keyof typeof VARIABLES;

/** Defaults that the seed gives, as written there. Ours are on the page that is generated, docs/reference/variables.md. */
const DEFAULTS = {
  NOTIFICATION_INTERNAL_HTTP_ADDR: ':8092',
  NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT: '2s',
  NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT: '10s',
  NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT: '1m',
  NOTIFICATION_INTENTS_STREAM: 'notification:intents',
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: '2s',
  NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM: 'gateway:client-events',
  NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '1024',
  NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM: 'mail:delivery_commands',
  NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '3',
  NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '7',
  NOTIFICATION_ROUTE_BACKOFF_MIN: '1s',
  NOTIFICATION_ROUTE_BACKOFF_MAX: '5m',
  NOTIFICATION_ROUTE_LEASE_TTL: '5s',
  NOTIFICATION_IDEMPOTENCY_TTL: '168h',
  NOTIFICATION_RECORD_RETENTION: '720h',
  NOTIFICATION_MALFORMED_INTENT_RETENTION: '2160h',
  NOTIFICATION_CLEANUP_INTERVAL: '1h',
  NOTIFICATION_USER_SERVICE_TIMEOUT: '1s',
} satisfies Partial<Record<Name, string>>;

const ADMIN_LISTS = [
  ['NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED', 'geo.review_recommended'],
  ['NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED', 'game.generation_failed'],
  ['NOTIFICATION_ADMIN_EMAILS_LOBBY_RUNTIME_PAUSED_AFTER_START', 'lobby.runtime_paused_after_start'],
  ['NOTIFICATION_ADMIN_EMAILS_LOBBY_APPLICATION_SUBMITTED', 'lobby.application.submitted'],
  ['NOTIFICATION_ADMIN_EMAILS_RUNTIME_IMAGE_PULL_FAILED', 'runtime.image_pull_failed'],
  ['NOTIFICATION_ADMIN_EMAILS_RUNTIME_CONTAINER_START_FAILED', 'runtime.container_start_failed'],
  ['NOTIFICATION_ADMIN_EMAILS_RUNTIME_START_CONFIG_INVALID', 'runtime.start_config_invalid'],
] as const;

const JWKS = { NOTIFICATION_CODEC_JWKS_URL: 'https://idp.example/jwks' };
const ISSUER = { NOTIFICATION_CODEC_ISSUER: 'https://idp.example' };
const CODEC = {
  NOTIFICATION_CODEC_HTTP_ADDR: '127.0.0.1:0',
  NOTIFICATION_PAYLOAD_KEYS: `a:${Buffer.alloc(32).toString('base64')}`,
};
const FIXED_STREAMS = [
  ...['notification:outcomes', 'notification:subscription-events', 'stream.notifications.jobs'],
  'stream.account.extremes',
];
const COLLECTOR = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

describe('defaults', () => {
  const { values, production, adminEmails } = loadConfig({});

  test('I30 those of the seed', () => {
    const names = Object.keys(DEFAULTS) as Name[];
    expect(Object.fromEntries(names.map((name) => [name, defaultOf(VARIABLES[name])]))).toEqual(DEFAULTS);
    expect(values).toEqual(loadConfig(DEFAULTS).values);
  });

  test('I14 I30 no user is an administrator, and nothing is production', () => {
    expect(production).toBe(false);
    expect([...adminEmails]).toEqual(ADMIN_NOTIFICATION_TYPES.map((type) => [type, []]));
  });

  test('I30 an empty value counts as not set', () => {
    const names = [...Object.keys(VARIABLES), ...Object.keys(ADMIN_EMAIL_VARIABLES)];
    expect(loadConfig(Object.fromEntries(names.map((name) => [name, '']))).values).toEqual(values);
  });
});

describe('values', () => {
  test.each<[Name, string, unknown]>([
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', ':8092', { host: '', port: 8_092 }],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '0.0.0.0:80', { host: '0.0.0.0', port: 80 }],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '[::1]:8092', { host: '::1', port: 8_092 }],
    ['NOTIFICATION_REDIS_REPLICA_ADDRS', ' one:6379 ,,', [{ host: 'one', port: 6_379 }]],
    [
      'NOTIFICATION_POSTGRES_REPLICA_DSNS',
      ' postgres://a ,, postgres://b,',
      ['postgres://a', 'postgres://b'],
    ],
    ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'postgresql:///n?host=/run/pg', 'postgresql:///n?host=/run/pg'],
    ['NOTIFICATION_DEV_BASE_PORT', '0', 0],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'Api-Key=a%20b, other = 1', { 'api-key': 'a b', other: '1' }],
  ])('I30 %s takes %s', (name, text, value) => {
    expect(loadConfig({ [name]: text }).values[name]).toEqual(value);
  });

  test.each<[name: string, problem: string, ...values: string[]]>([
    ['NODE_ENV', 'must be production, development or test (got ', 'prod', 'Production', 'production '],
    ['NOTIFICATION_ROLES', 'must name roles: intent, mobile-push, symbol-config, account-callback', 'mobile'],
    ['NOTIFICATION_LOG_LEVEL', 'info', 'verbose'],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', 'host:port', '8092', 'localhost:65536', '::1:8092'],
    ['NOTIFICATION_REDIS_MASTER_ADDR', 'host:port', 'redis://localhost:6379', 'redis://:s3cret@redis:6379'],
    ['NOTIFICATION_REDIS_REPLICA_ADDRS', 'host:port', 'one:6379,two', 'redis://:s3cret@redis:6379'],
    ['NOTIFICATION_REDIS_SENTINELS', 'must be host:port,', 'one:26379,two', 'one:26379/', 'one/n'],
    ['NOTIFICATION_REDIS_SENTINELS', 'must be host:port,', 'one:26379,/n', 'user:s3cret@one:26379/n'],
    ['NOTIFICATION_REDIS_SENTINELS', 'must be host:port,', 'rediss://one:26379,rediss://two:26379/n'],
    ['NOTIFICATION_REDIS_USER', 'NOTIFICATION_REDIS_PASSWORD', 'notify'],
    ['NOTIFICATION_REDIS_DB', 'whole number', '-1'],
    ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'postgres://', 'mysql://n:s3cret@db/n', 'n:s3cret@db', 'host=db'],
    ['NOTIFICATION_POSTGRES_REPLICA_DSNS', 'postgres://', 'postgres://ok/x,notify:s3cret@db'],
    ['NOTIFICATION_POSTGRES_MAX_OPEN_CONNS', 'at least 1', '0'],
    ['NOTIFICATION_INTENTS_STREAM', 'without spaces', 'my stream'],
    ['NOTIFICATION_INTENTS_STREAM', 'a stream that has another purpose', ...FIXED_STREAMS],
    ['NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM', 'ASCII', 'größe'],
    ['NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM', 'must name different streams', 'notification:intents'],
    ['NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS', 'at most 1000', '1001'],
    ['NOTIFICATION_USER_SERVICE_BASE_URL', 'http or https', 'ftp://users.internal'],
    ['NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED', 'true or false', '1'],
    ['NOTIFICATION_DEV_BASE_PORT', 'at most 65524', '65525'],
    ['NOTIFICATION_INSECURE', 'must be of redis, postgres', 'redis,http'],
    ['NOTIFICATION_SYMBOL_CRAWL_INTERVAL', 'must be at least 1s', '1ms'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'http/json', 'grpc'],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json', 'grpc'],
    ['OTEL_EXPORTER_OTLP_METRICS_PROTOCOL', 'http/json', 'http/protobuf'],
    ['OTEL_TRACES_EXPORTER', 'none', 'jaeger'],
    ['OTEL_METRICS_EXPORTER', 'none', 'prometheus'],
    ['OTEL_LOGS_EXPORTER', 'none', 'otlp'],
    ['OTEL_SDK_DISABLED', 'false', 'true'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'must be', 's3cret', 'name=%zz'],
    // Wrong only together with the default of another one.
    ['NOTIFICATION_ROUTE_BACKOFF_MIN', 'NOTIFICATION_ROUTE_BACKOFF_MAX', '6m'],
    ['NOTIFICATION_ROUTE_LEASE_TTL', 'NOTIFICATION_REDIS_OPERATION_TIMEOUT', '1s'],
    ['NOTIFICATION_REDIS_OPERATION_TIMEOUT', 'NOTIFICATION_ROUTE_LEASE_TTL', '6s'],
    ['NOTIFICATION_POSTGRES_MAX_IDLE_CONNS', 'NOTIFICATION_POSTGRES_MAX_OPEN_CONNS', '26'],
    // Node would refuse to listen.
    ['NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT', 'NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT', '11s'],
    ['NOTIFICATION_CODEC_ISSUER', 'NOTIFICATION_CODEC_JWKS_URL', 'https://idp.example'],
  ])('I30 I91 security-3 security-11 intent-OTEL %s is refused: %s', (name, problem, ...values) => {
    for (const value of values) {
      const [found, ...others] = problemsOf({ [name]: value });
      expect(others).toEqual([]);
      expect(found).toMatch(new RegExp(`\\b${name}\\b`));
      expect(found).toContain(problem);
      expect(found).not.toContain('s3cret');
    }
  });

  test.each<[env: Env, named: string]>([
    [{ ...ISSUER, ...JWKS }, 'NOTIFICATION_CODEC_AUDIENCE'],
    [CODEC, 'NOTIFICATION_CODEC_JWKS_URL'],
  ])('I30 %j is refused for %s', (env, named) => {
    expect(problemsOf(env)).toEqual([expect.stringContaining(named)]);
  });

  test.each<Env>([
    { NODE_ENV: 'test' },
    { NOTIFICATION_ROUTE_BACKOFF_MIN: '5m' },
    { NOTIFICATION_ROUTE_LEASE_TTL: '2s' },
    { NOTIFICATION_POSTGRES_MAX_IDLE_CONNS: '25' },
    { ...CODEC, ...JWKS, ...ISSUER, NOTIFICATION_CODEC_AUDIENCE: 'codec' },
    { ...COLLECTOR, ...Object.fromEntries(OTEL_FIXED), OTEL_TRACES_SAMPLER: 'always_on' },
    { OTEL_TRACES_EXPORTER: 'none' },
  ])('I30 intent-OTEL %j is taken', (env) => expect(problemsOf(env)).toEqual([]));

  test("intent-OTEL metrics of Temporal's SDK go where the others go, with the same headers, or nowhere", () => {
    const otelOf = (env: Env) => temporalMetrics(loadConfig({ ...COLLECTOR, ...env }));
    expect(otelOf({ OTEL_EXPORTER_OTLP_HEADERS: 'api-key=1,tenant=a' })).toMatchObject({
      otel: { headers: { 'api-key': '1', tenant: 'a' }, url: 'http://collector:4318/v1/metrics' },
    });
    expect(otelOf({ OTEL_METRICS_EXPORTER: 'none' })).toBeUndefined();
  });
});

describe('durations and times', () => {
  const NAME = 'NOTIFICATION_RECORD_RETENTION';

  test.each([
    ['1ms', 1],
    ['250ms', 250],
    ['1.5s', 1_500],
    ['1m30s', 90_000],
    ['1h1m1s1ms', 3_661_001],
    ['168h', 604_800_000],
    ['1d12h', 129_600_000],
    ['3650d', 315_360_000_000],
  ])('I30 U7 %s is as long in a variable as in an option', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
    expect(loadConfig({ [NAME]: text }).values[NAME]).toBe(ms);
  });

  test.each([
    ...'0 0s 0ms 0.4ms 5 -5s +5s 1w s 1s1 .5s 1e3s 5S 5µs forever 3651d 9999999999999h'.split(' '),
    ...['5 s', ' 5s', '5s '],
  ])('I30 U7 %j is no duration in a variable and in an option', (text) => {
    expect(() => parseDuration(text)).toThrow(/^Give a duration such as /);
    expect(problemsOf({ [NAME]: text })).toEqual([
      `${NAME} must be a duration above zero such as 250ms, 90s, 1m30s, 2h or 7d (got ${JSON.stringify(text)})`,
    ]);
  });

  test('I30 every duration is checked as one', () => {
    const durations = Object.keys(VARIABLES).filter((name) =>
      /^NOTIFICATION_.*(TIMEOUT|_TTL|RETENTION|INTERVAL|LIFETIME|BACKOFF_M..)$/.test(name),
    );
    expect(durations.length).toBeGreaterThan(15);
    const problems = durations.flatMap((name) => problemsOf({ [name]: 'soon' }));
    expect(problems.map((problem) => problem.split(' above')[0])).toEqual(
      durations.map((name) => `${name} must be a duration`),
    );
  });

  test('U7 times may be durations from now, of any form', () => {
    const near = (time: Date, ms: number) => Math.abs(time.getTime() - Date.now() - ms) < 5_000;
    expect(near(parseTime('1d12h'), -129_600_000)).toBe(true);
    expect(near(parseFuture('1h30m'), 5_400_000)).toBe(true);
    for (const text of ['2026-01-31T12:00Z', '2026-01-31 12:00', '2026-01-31T14:00:00.0+0200'])
      expect(parseTime(text).toISOString()).toBe('2026-01-31T12:00:00.000Z');
    expect(parseTime('2026-01-31').toISOString()).toBe('2026-01-31T00:00:00.000Z');
    // A zone that is not understood must not be left out.
    for (const text of ['yesterday', '2026-01', '2026-01-31 12:00 GMT+3', '2026-01-31 12:00 CET'])
      expect(() => parseTime(text)).toThrow('Give a time before now');
  });
});

describe('administrators', () => {
  test.each(ADMIN_LISTS)('I14 I30 %s is the list of %s alone', (name, type) => {
    const { adminEmails } = loadConfig({ [name]: ' Ada@Example.com,ops@example.com ,, ADA@example.COM,' });
    expect(adminEmails.get(type)).toEqual(['Ada@example.com', 'ops@example.com']);
    expect([...adminEmails.values()].flat()).toHaveLength(2);
  });

  test.each([
    ['İnfo@Example.com', 'İnfo@example.com'],
    ['Ops@BÜCHER.example', 'Ops@bÜcher.example'],
  ])('bug-P15 the mailbox of %s stays as it is', (given, email) => {
    const { adminEmails } = loadConfig({ [ADMIN_LISTS[0][0]]: given });
    expect([...adminEmails.values()].flat()).toEqual([email]);
  });

  test.each([
    ...'ada ada@ @example.com a@b@c a@x;b@x'.split(' '),
    ...['Ada <ada@example.com>', 'a b@example.com', 'a@x\u0000'],
  ])('I14 I30 the address %j is refused', (address) => {
    const shown = JSON.stringify(address).slice(1, -1);
    for (const [name] of ADMIN_LISTS) {
      const problems = problemsOf({ [name]: `ops@example.com,${address}` });
      expect(problems).toEqual([
        expect.stringMatching(new RegExp(`^${name} entry \\d must be one e-mail address `)),
      ]);
      expect(problems[0]).toContain(shown);
    }
  });
});

describe('names', () => {
  test.each<[string, string | undefined]>([
    ['NOTIFICATION_REDIS_MASTER_ADDRESS', 'NOTIFICATION_REDIS_MASTER_ADDR'],
    ['NOTIFICATION_REDIS_PASSWRD', 'NOTIFICATION_REDIS_PASSWORD'],
    ['NOTIFICATION_REDIS_PASWORD_FILE', 'NOTIFICATION_REDIS_PASSWORD_FILE'],
    // Only secrets are read from files.
    ['NOTIFICATION_REDIS_DB_FILE', 'NOTIFICATION_REDIS_DB'],
    ['NOTIFICATION_ADMIN_EMAIL_GAME_GENERATION_FAILED', 'NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED'],
    ['NOTIFICATION_MAX_DELIVERY_COUNT', 'NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT'],
    ['NOTIFICATION_XYZZY', undefined],
    [`NOTIFICATION_${'X'.repeat(200)}`, undefined],
  ])('newcomer-9 security-12 %s is refused, and the nearest name is told', (name, nearest) => {
    expect(problemsOf({ [name]: 's3cret' })).toEqual([
      `${name} has no effect: ${nearest === undefined ? '' : `did you mean ${nearest}? `}docs/reference/variables.md lists the variables`,
    ]);
    expect(problemsOf({ [name]: '' })).toEqual([]);
  });

  test.each([
    ['AUTOCLAIM_MIN_IDLE_MS', 'NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE'],
    ['MAX_DELIVERY_COUNT', 'NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT'],
    ['NOTIFICATION_REDIS_ADDR', 'NOTIFICATION_REDIS_MASTER_ADDR'],
    ['NOTIFICATION_REDIS_USERNAME', 'NOTIFICATION_REDIS_USER'],
    ['NOTIFICATION_REDIS_TLS_ENABLED', 'NOTIFICATION_REDIS_MASTER_ADDR'],
    ['NOTIFICATION_RECORD_TTL', 'NOTIFICATION_RECORD_RETENTION'],
    ['NOTIFICATION_DEAD_LETTER_TTL', 'NOTIFICATION_RECORD_RETENTION'],
  ])('I30 newcomer-9 the seed has %s, and its successor is named', (name, successor) => {
    for (const env of [{}, PRODUCTION])
      expect(problemsOf({ ...env, [name]: '5' })).toEqual([
        expect.stringMatching(new RegExp(`^${name} is no longer supported: .*\\b${successor}\\b`)),
      ]);
  });

  test('newcomer-9 what Kubernetes tells of services beside the pod is taken', () => {
    const linksOf = (service: string) => ({
      [`${service}_SERVICE_HOST`]: '10.0.0.1',
      [`${service}_SERVICE_PORT_HTTP`]: '80',
      [`${service}_PORT`]: 'tcp://10.0.0.1:80',
      [`${service}_PORT_80_TCP_ADDR`]: '10.0.0.1',
    });
    expect(problemsOf({ ...linksOf('NOTIFICATION'), ...linksOf('NOTIFICATION_MAIL') })).toEqual([]);
    expect(problemsOf({ ...linksOf('NOTIFICATION'), NOTIFICATION_PORTFOLIO_TOKN: 'x' })).toHaveLength(1);
  });
});

describe('production', () => {
  test('I30 a complete environment is taken', () => {
    const { production, values } = loadConfig(PRODUCTION);
    expect(production).toBe(true);
    const redis = { host: 'redis.internal', port: 6_379, tls: true };
    expect(values).toMatchObject({
      ...{ NOTIFICATION_REDIS_MASTER_ADDR: redis, NOTIFICATION_REDIS_PASSWORD: 'redis-s3cret-4f9a1c' },
    });
  });

  test.each(Object.keys(REQUIRED))('I30 %s is required', (name) => {
    const required = [expect.stringMatching(new RegExp(`^${name} is required in production: `))];
    expect(problemsOf({ ...PRODUCTION, [name]: undefined })).toEqual(required);
    expect(problemsOf({ ...PRODUCTION, [name]: '' })).toEqual(required);
    expect(problemsOf({ ...PRODUCTION, NODE_ENV: 'development', [name]: undefined })).toEqual([]);
  });

  const MOBILE = {
    NOTIFICATION_ROLES: 'intent,mobile-push',
    GOOGLE_APPLICATION_CREDENTIALS: '/etc/fcm.json',
  };
  const ACCOUNTS = {
    NOTIFICATION_ROLES: 'account-callback',
    NOTIFICATION_PORTFOLIO_BASE_URL: 'https://portfolios.internal',
    NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: 'whsec_w3Yp0mBqkX7Jv5dT1rZLh8uC2sNfGaEo6iQyRtVbKxM=',
  };
  test.each<[env: Env, problem: string]>([
    [{ ...MOBILE, GOOGLE_APPLICATION_CREDENTIALS: '' }, 'is required in production by the role mobile-push'],
    [
      { ...MOBILE, NOTIFICATION_FCM_ENDPOINT: 'https://localhost:8094' },
      'pushes would go to a server that is not FCM',
    ],
    [
      { ...ACCOUNTS, NOTIFICATION_PORTFOLIO_BASE_URL: '' },
      'NOTIFICATION_PORTFOLIO_BASE_URL is required in production',
    ],
  ])('M10 C5 I30 in production, %j is refused: %s', (env, problem) => {
    expect(problemsOf({ ...PRODUCTION, ...env })).toEqual([expect.stringContaining(problem)]);
  });

  test.each<Env>([
    MOBILE,
    ACCOUNTS,
    { TEMPORAL_ADDRESS: undefined, TEMPORAL_PROFILE: 'x' },
    { TEMPORAL_ADDRESS: undefined, TEMPORAL_CONFIG_FILE: 'x' },
  ])('M10 C5 I30 in production, %j is taken', (env) => {
    expect(problemsOf({ ...PRODUCTION, ...env })).toEqual([]);
  });

  test('M10 I30 elsewhere all roles are taken on, unless some are named', () => {
    expect(loadConfig({}).roles).toEqual(ROLE_NAMES);
    expect(loadConfig({ NOTIFICATION_ROLES: 'mobile-push' }).roles).toEqual(['mobile-push']);
    expect(loadConfig(PRODUCTION).roles).toEqual(['intent']);
  });

  test('I30 all problems are reported together, each on its own line', () => {
    const wrong: Env = {
      ...{ ...PRODUCTION, NOTIFICATION_LOG_LEVEL: 'verbose', NOTIFICATION_POSTGRES_PRIMARY_DSN: undefined },
      ...{ NOTIFICATION_POSTGRES_MAX_OPEN_CONNS: '2', NOTIFICATION_REDIS_TLS_ENABLED: 'true' },
    };
    expect(problemsOf(wrong).map((problem) => problem.split(' ')[0])).toEqual([
      ...['NOTIFICATION_LOG_LEVEL', 'NOTIFICATION_POSTGRES_PRIMARY_DSN', 'NOTIFICATION_REDIS_TLS_ENABLED'],
      'NOTIFICATION_POSTGRES_MAX_IDLE_CONNS',
    ]);
    expect(() => loadConfig(wrong)).toThrow(/^the configuration is wrong:\n( {2}\S.*\n){3} {2}\S.*$/);
  });

  test("I30 the SDK's own loader gets the TEMPORAL_ variables and nothing else", () => {
    const { temporalEnv } = loadConfig({ ...PRODUCTION, TEMPORAL_API_KEY: 'k', TEMPORAL_PROFILE: '' });
    expect(temporalEnv).toEqual({
      ...{ TEMPORAL_ADDRESS: 'temporal.internal:7233', TEMPORAL_TLS: 'true', TEMPORAL_API_KEY: 'k' },
    });
  });
});

test('I30 .env.example has every variable with its default, in order, commented out, below its meaning', () => {
  const lines = readFileSync(path.resolve('.env.example'), 'utf8').split('\n');
  const shown = lines.flatMap((line, at) => (/^#? ?[A-Z0-9_]+=/.test(line) ? [[lines[at - 1], line]] : []));
  expect(shown).toEqual(
    Object.entries<z.ZodType>({ ...VARIABLES, ...ADMIN_EMAIL_VARIABLES }).map(([name, schema]) => {
      const { description, requiredInProduction } = schema.meta()!;
      return [
        `# ${description}${requiredInProduction ? ' Required in production.' : ''}`,
        `# ${name}=${defaultOf(schema) ?? ''}`,
      ];
    }),
  );
});

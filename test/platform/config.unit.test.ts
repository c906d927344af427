/** The environment: names, defaults, checks, and `.env.example`. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { z } from 'zod';
import { VARIABLES, loadConfig } from '../../config/load.ts';
import { ConfigError, defaultOf } from '../../config/variables.ts';
import type { Env } from './config-problems.ts';
import { PRODUCTION, REQUIRED, problemsOf } from './config-problems.ts';
import { ADMIN_EMAIL_VARIABLES, ADMIN_NOTIFICATION_TYPES } from '../intent/galaxy.ts';

type Name = keyof typeof VARIABLES;

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Defaults that the seed gives, as written there. Ours are on the page that is generated, docs/reference/variables.md. */
const DEFAULTS: [name: Name, seed: string, value?: unknown][] = [
  ['NOTIFICATION_INTERNAL_HTTP_ADDR', ':8092', { host: '', port: 8092 }],
  ['NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT', '2s', 2 * SECOND],
  ['NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT', '10s', 10 * SECOND],
  ['NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT', '1m', MINUTE],
  ['NOTIFICATION_INTENTS_STREAM', 'notification:intents'],
  ['NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT', '2s', 2 * SECOND],
  ['NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM', 'gateway:client-events'],
  ['NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN', '1024', 1_024],
  ['NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM', 'mail:delivery_commands'],
  ['NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS', '3', 3],
  ['NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS', '7', 7],
  ['NOTIFICATION_ROUTE_BACKOFF_MIN', '1s', SECOND],
  ['NOTIFICATION_ROUTE_BACKOFF_MAX', '5m', 5 * MINUTE],
  ['NOTIFICATION_ROUTE_LEASE_TTL', '5s', 5 * SECOND],
  ['NOTIFICATION_IDEMPOTENCY_TTL', '168h', 168 * HOUR],
  ['NOTIFICATION_RECORD_RETENTION', '720h', 720 * HOUR],
  ['NOTIFICATION_MALFORMED_INTENT_RETENTION', '2160h', 2_160 * HOUR],
  ['NOTIFICATION_CLEANUP_INTERVAL', '1h', HOUR],
  ['NOTIFICATION_USER_SERVICE_TIMEOUT', '1s', SECOND],
];

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

const valueOf = (name: Name, text: string): unknown => loadConfig({ [name]: text }).values[name];

describe('defaults', () => {
  const { values, production, adminEmails } = loadConfig({});

  test.each(DEFAULTS)('I30 %s is %s by default', (name, seed, value = seed) => {
    expect(values[name]).toEqual(value);
    expect(defaultOf(VARIABLES[name])).toBe(seed);
  });

  test('I14 I30 no user is an administrator, and nothing is production', () => {
    expect(production).toBe(false);
    expect(Object.fromEntries(adminEmails)).toEqual(
      Object.fromEntries(ADMIN_NOTIFICATION_TYPES.map((type) => [type, []])),
    );
  });

  test('I30 an empty value counts as not set', () => {
    const names = [...Object.keys(VARIABLES), ...Object.keys(ADMIN_EMAIL_VARIABLES)];
    expect(loadConfig(Object.fromEntries(names.map((name) => [name, '']))).values).toEqual(values);
  });
});

describe('values', () => {
  test.each<[Name, string, unknown]>([
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '0.0.0.0:80', { host: '0.0.0.0', port: 80 }],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '[::1]:8092', { host: '::1', port: 8_092 }],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '127.0.0.1:0', { host: '127.0.0.1', port: 0 }],
    [
      'NOTIFICATION_REDIS_REPLICA_ADDRS',
      ' one:6379 ,, two:6380,',
      [
        { host: 'one', port: 6_379 },
        { host: 'two', port: 6_380 },
      ],
    ],
    [
      'NOTIFICATION_POSTGRES_REPLICA_DSNS',
      'postgres://a/x, postgresql://b/x',
      ['postgres://a/x', 'postgresql://b/x'],
    ],
    [
      'NOTIFICATION_POSTGRES_PRIMARY_DSN',
      'postgresql:///notification?host=/run/pg',
      'postgresql:///notification?host=/run/pg',
    ],
    ['NOTIFICATION_DEV_BASE_PORT', '0', 0],
  ])('I30 %s takes %s', (name, text, value) => {
    expect(valueOf(name, text)).toEqual(value);
  });

  test.each<[Name, string, string]>([
    ['NOTIFICATION_LOG_LEVEL', 'verbose', 'info'],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '8092', 'host:port'],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', 'localhost:65536', 'host:port'],
    ['NOTIFICATION_INTERNAL_HTTP_ADDR', '::1:8092', 'host:port'],
    ['NOTIFICATION_REDIS_MASTER_ADDR', 'redis://localhost:6379', 'host:port'],
    ['NOTIFICATION_REDIS_REPLICA_ADDRS', 'one:6379,two', 'host:port'],
    ['NOTIFICATION_REDIS_SENTINELS', 'one:26379,two', 'host:port'],
    ['NOTIFICATION_REDIS_DB', '-1', 'whole number'],
    ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'mysql://localhost/notification', 'postgres://'],
    ['NOTIFICATION_POSTGRES_PRIMARY_DSN', 'host=localhost', 'postgres://'],
    ['NOTIFICATION_POSTGRES_REPLICA_DSNS', 'postgres://a/x,b', 'postgres://'],
    ['NOTIFICATION_POSTGRES_MAX_OPEN_CONNS', '0', 'at least 1'],
    ['NOTIFICATION_INTENTS_STREAM', 'my stream', 'without spaces'],
    ['NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM', 'größe', 'ASCII'],
    ['NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS', '1001', 'at most 1000'],
    ['NOTIFICATION_USER_SERVICE_BASE_URL', 'ftp://users.internal', 'http or https'],
    ['NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED', '1', 'true or false'],
    ['NOTIFICATION_DEV_BASE_PORT', '65525', 'at most 65524'],
    ['NOTIFICATION_INSECURE', 'redis,http', 'must be of redis, postgres'],
    ['NOTIFICATION_SYMBOL_CRAWL_INTERVAL', '1ms', 'must be at least 1s'],
  ])('I30 %s=%s is refused with the name and what it should be', (name, text, problem) => {
    const problems = problemsOf({ [name]: text });

    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${name} `));
    expect(problems[0]).toContain(problem);
  });

  test('I30 every duration is checked as one', () => {
    const durations = Object.keys(VARIABLES).filter((name) =>
      /^NOTIFICATION_.*(TIMEOUT|_TTL|RETENTION|INTERVAL|LIFETIME|BACKOFF_M..)$/.test(name),
    );
    expect(durations.length).toBeGreaterThan(15);
    for (const name of durations) {
      expect(problemsOf({ [name]: 'soon' })).toEqual([
        expect.stringMatching(new RegExp(`^${name} must be a duration`)),
      ]);
    }
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
    'ada',
    'ada@',
    '@example.com',
    'Ada <ada@example.com>',
    'a@b@c',
    'a@x;b@x',
    'a b@example.com',
    'a@x\u0000',
  ])('I14 I30 the address %j is refused', (address) => {
    for (const [name] of ADMIN_LISTS) {
      const problems = problemsOf({ [name]: `ops@example.com,${address}` });

      expect(problems).toHaveLength(1);
      expect(problems[0]).toMatch(new RegExp(`^${name} entry \\d must be one e-mail address `));
      expect(problems[0]).toContain(JSON.stringify(address).slice(1, -1));
    }
  });
});

describe('what is wrong', () => {
  test('security-3 production is written in one way', () => {
    for (const name of ['prod', 'Production', 'production ', 'staging']) {
      expect(problemsOf({ NODE_ENV: name })).toEqual([
        `NODE_ENV must be production, development or test (got ${JSON.stringify(name)})`,
      ]);
    }
    expect(problemsOf({ NODE_ENV: 'test' })).toEqual([]);
  });

  test('security-11 each stream has its own name', () => {
    const mail = { NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM: 'notification:intents' };
    expect(problemsOf(mail)).toEqual([
      'NOTIFICATION_INTENTS_STREAM and NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM must name different streams',
    ]);
    for (const fixed of [
      'notification:outcomes',
      'notification:subscription-events',
      'stream.notifications.jobs',
      'stream.account.extremes',
    ]) {
      expect(problemsOf({ NOTIFICATION_INTENTS_STREAM: fixed })).toEqual([
        expect.stringContaining('must not be a stream that has another purpose'),
      ]);
    }
  });

  test('M10 in production the role mobile-push needs credentials, and sends to FCM alone', () => {
    const env = { ...PRODUCTION, NOTIFICATION_ROLES: 'intent,mobile-push' };
    expect(problemsOf(env)).toEqual([
      expect.stringMatching(
        /^GOOGLE_APPLICATION_CREDENTIALS is required in production by the role mobile-push/,
      ),
    ]);
    const credentials = { GOOGLE_APPLICATION_CREDENTIALS: '/etc/fcm.json' };
    expect(problemsOf({ ...env, ...credentials })).toEqual([]);
    expect(
      problemsOf({
        ...env,
        ...credentials,
        NOTIFICATION_FCM_ENDPOINT: 'https://localhost:8094',
      }),
    ).toEqual([
      'NOTIFICATION_FCM_ENDPOINT is refused in production: pushes would go to a server that is not FCM',
    ]);
    expect(problemsOf(PRODUCTION)).toEqual([]);
  });

  test('C5 I30 the role account-callback needs a portfolio service in production', () => {
    const env = { ...PRODUCTION, NOTIFICATION_ROLES: 'account-callback' };
    expect(problemsOf(env)).toEqual([
      expect.stringMatching(/^NOTIFICATION_PORTFOLIO_BASE_URL is required in production/),
    ]);
    const portfolio = {
      NOTIFICATION_PORTFOLIO_BASE_URL: 'https://portfolios.internal',
      NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: 'whsec_w3Yp0mBqkX7Jv5dT1rZLh8uC2sNfGaEo6iQyRtVbKxM=',
    };
    expect(problemsOf({ ...env, ...portfolio })).toEqual([]);
  });

  test('M10 I30 elsewhere all roles are taken on, unless some are named', () => {
    expect(loadConfig({}).roles).toEqual([
      'intent',
      'mobile-push',
      'symbol-config',
      'account-callback',
      'subscription',
    ]);
    expect(loadConfig({ NOTIFICATION_ROLES: 'mobile-push' }).roles).toEqual(['mobile-push']);
    expect(loadConfig(PRODUCTION).roles).toEqual(['intent']);
    expect(problemsOf({ NOTIFICATION_ROLES: 'mobile' })[0]).toMatch(
      /must name roles: intent, mobile-push, symbol-config, account-callback/,
    );
  });

  test.each<[string, string | undefined]>([
    ['NOTIFICATION_REDIS_MASTER_ADDRESS', 'NOTIFICATION_REDIS_MASTER_ADDR'],
    ['NOTIFICATION_REDIS_PASSWRD', 'NOTIFICATION_REDIS_PASSWORD'],
    ['NOTIFICATION_REDIS_PASWORD_FILE', 'NOTIFICATION_REDIS_PASSWORD_FILE'],
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

  test('I30 all problems are reported together, each on its own line', () => {
    const wrong: Env = {
      ...PRODUCTION,
      NOTIFICATION_LOG_LEVEL: 'verbose',
      NOTIFICATION_POSTGRES_PRIMARY_DSN: undefined,
      NOTIFICATION_POSTGRES_MAX_OPEN_CONNS: '2',
      NOTIFICATION_REDIS_TLS_ENABLED: 'true',
    };
    const names = [
      ...['NOTIFICATION_LOG_LEVEL', 'NOTIFICATION_POSTGRES_PRIMARY_DSN', 'NOTIFICATION_REDIS_TLS_ENABLED'],
      'NOTIFICATION_POSTGRES_MAX_IDLE_CONNS',
    ];

    expect(problemsOf(wrong).map((problem) => problem.split(' ')[0])).toEqual(names);
    expect(() => loadConfig(wrong)).toThrow(ConfigError);
    expect(() => loadConfig(wrong)).toThrow(/^the configuration is wrong:\n( {2}\S.*\n){3} {2}\S.*$/);
  });

  test.each<[string, Env, string | undefined]>([
    ['a ladder upside down', { NOTIFICATION_ROUTE_BACKOFF_MIN: '6m' }, 'NOTIFICATION_ROUTE_BACKOFF_MAX'],
    ['a ladder of one step', { NOTIFICATION_ROUTE_BACKOFF_MIN: '5m' }, undefined],
    [
      'a lease shorter than a publication',
      { NOTIFICATION_ROUTE_LEASE_TTL: '1s' },
      'NOTIFICATION_REDIS_OPERATION_TIMEOUT',
    ],
    [
      'a publication longer than the lease',
      { NOTIFICATION_REDIS_OPERATION_TIMEOUT: '6s' },
      'NOTIFICATION_ROUTE_LEASE_TTL',
    ],
    ['a lease as long as a publication', { NOTIFICATION_ROUTE_LEASE_TTL: '2s' }, undefined],
    [
      'more idle than open connections',
      { NOTIFICATION_POSTGRES_MAX_IDLE_CONNS: '26' },
      'NOTIFICATION_POSTGRES_MAX_OPEN_CONNS',
    ],
    ['an issuer of tokens without its keys', ISSUER, 'NOTIFICATION_CODEC_JWKS_URL'],
    ['an issuer of tokens without an audience', { ...JWKS, ...ISSUER }, 'NOTIFICATION_CODEC_AUDIENCE'],
    ['a codec server without callers', CODEC, 'NOTIFICATION_CODEC_JWKS_URL'],
    [
      'a codec server for whom an issuer knows',
      { ...CODEC, ...JWKS, ...ISSUER, NOTIFICATION_CODEC_AUDIENCE: 'codec' },
      undefined,
    ],
    ['all connections idle', { NOTIFICATION_POSTGRES_MAX_IDLE_CONNS: '25' }, undefined],
    [
      'headers allowed longer than the request (Node refuses to listen)',
      { NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT: '11s' },
      'NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT',
    ],
  ])('I30 values wrong only together: %s', (_what, env, named) => {
    const problems = problemsOf(env);

    expect(problems).toHaveLength(named === undefined ? 0 : 1);
    if (named === undefined) return;
    expect(problems[0]).toContain(Object.keys(env)[0]);
    expect(problems[0]).toContain(named);
  });
});

describe('production', () => {
  test('I30 a complete environment is taken', () => {
    const { production, values } = loadConfig(PRODUCTION);

    expect(production).toBe(true);
    expect(values.NOTIFICATION_REDIS_MASTER_ADDR).toEqual({
      ...{ host: 'redis.internal', port: 6_379, tls: true },
    });
    expect(values.NOTIFICATION_REDIS_PASSWORD).toBe('redis-s3cret-4f9a1c');
  });

  test.each(Object.keys(REQUIRED))('I30 %s is required', (name) => {
    const required = [expect.stringMatching(new RegExp(`^${name} is required in production: `))];

    expect(problemsOf({ ...PRODUCTION, [name]: undefined })).toEqual(required);
    expect(problemsOf({ ...PRODUCTION, [name]: '' })).toEqual(required);
    expect(problemsOf({ ...PRODUCTION, NODE_ENV: 'development', [name]: undefined })).toEqual([]);
  });

  test.each(['TEMPORAL_PROFILE', 'TEMPORAL_CONFIG_FILE'])('I30 %s stands in for TEMPORAL_ADDRESS', (name) => {
    expect(problemsOf({ ...PRODUCTION, TEMPORAL_ADDRESS: undefined, [name]: 'x' })).toEqual([]);
  });

  test("I30 the SDK's own loader gets the TEMPORAL_ variables and nothing else", () => {
    const { temporalEnv } = loadConfig({ ...PRODUCTION, TEMPORAL_API_KEY: 'k', TEMPORAL_PROFILE: '' });

    expect(temporalEnv).toEqual({
      TEMPORAL_ADDRESS: 'temporal.internal:7233',
      TEMPORAL_TLS: 'true',
      TEMPORAL_API_KEY: 'k',
    });
  });
});

describe('.env.example', () => {
  const lines = readFileSync(path.join(import.meta.dirname, '../../.env.example'), 'utf8').split('\n');
  const rows = Object.entries<z.ZodType>({ ...VARIABLES, ...ADMIN_EMAIL_VARIABLES });

  test('I30 it has every variable with its default, in order, commented out, below its meaning', () => {
    const shown = lines.flatMap((line, at) => (/^#? ?[A-Z0-9_]+=/.test(line) ? [[lines[at - 1], line]] : []));

    expect(shown).toEqual(
      rows.map(([name, schema]) => {
        const { description, requiredInProduction } = schema.meta()!;
        return [
          `# ${description}${requiredInProduction ? ' Required in production.' : ''}`,
          `# ${name}=${defaultOf(schema) ?? ''}`,
        ];
      }),
    );
  });
});

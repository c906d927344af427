/**
 * Connections that are encrypted and both of whose ends are proven: Redis, PostgreSQL, Temporal, each a real server. An
 * outsider tries each of them, as a server and as a client.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { publishIntent, newGameTurnReady } from '../../client/notificationintent.ts';
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { provideEndpoints } from '../../workers/embedded.ts';
import { createLogger } from '../../workers/logger.ts';
import { startService } from '../../workers/service.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { Certificates } from '../identities.ts';
import { createCertificates } from '../identities.ts';
import type { Sentinels } from '../redis-sentinels.ts';
import { startSentinels } from '../redis-sentinels.ts';
import { problemsIn } from './config-problems.ts';
import { rotatingPostgres, rotatingRedis, rotatingTemporal } from './rotating-servers.ts';

const ignore = () => undefined;
const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-tls-'));
const PASSWORD = 'Zu-7c1e5f0a9b';

/** What ends with this file. */
const cleanups: (() => unknown)[] = [() => rmSync(dataDir, { recursive: true, force: true })];
let slot: Slot;
let server: Certificates;
let client: Certificates;
let redis: Awaited<ReturnType<typeof rotatingRedis>>;
let postgres: Awaited<ReturnType<typeof rotatingPostgres>>;
let temporal: Awaited<ReturnType<typeof rotatingTemporal>>;

beforeAll(async () => {
  [server, client] = [await createCertificates(), await createCertificates()];
  const own = { server: server.own, client: client.own };
  slot = await takeSlot();
  cleanups.push(() => slot.release());
  redis = await rotatingRedis(dataDir, own, PASSWORD);
  cleanups.push(() => redis.stop());
  postgres = await rotatingPostgres(dataDir, own, PASSWORD);
  cleanups.push(() => postgres.stop());
  temporal = await rotatingTemporal(slot.endpoints.temporalAddress!, own);
  cleanups.push(() => temporal.stop());
});
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** What the service shows a server, and what it trusts. */
interface Access {
  trusted: LoopbackCertificate;
  /** None: no certificate of the client. */
  shown?: LoopbackCertificate;
  /** None: no password. */
  password?: string;
  isPlain?: boolean;
}
type Store = 'Redis' | 'PostgreSQL' | 'Temporal';

const rightAccess = (): Access => ({ trusted: server.own, shown: client.own, password: PASSWORD });

function environment(changed: Partial<Record<Store, Access>> = {}): Record<string, string> {
  const to = (store: Store) => changed[store] ?? rightAccess();
  return {
    NOTIFICATION_REDIS_DB: '0',
    NOTIFICATION_USER_SERVICE_BASE_URL: slot.userService.url,
    ...VARIABLES.Redis(to('Redis')),
    ...VARIABLES.PostgreSQL(to('PostgreSQL')),
    ...VARIABLES.Temporal(to('Temporal')),
  };
}

const VARIABLES: Record<Store, (access: Access) => Record<string, string>> = {
  Redis: ({ trusted, shown, password, isPlain }) => ({
    NOTIFICATION_REDIS_MASTER_ADDR: `${isPlain ? '' : 'rediss://'}127.0.0.1:${redis.port}`,
    ...(password === undefined ? {} : { NOTIFICATION_REDIS_PASSWORD: password }),
    ...(isPlain ? {} : { NOTIFICATION_REDIS_CA_FILE: file(trusted.certPem) }),
    ...(shown && {
      NOTIFICATION_REDIS_CERT_FILE: file(shown.certPem),
      NOTIFICATION_REDIS_KEY_FILE: file(shown.keyPem),
    }),
  }),
  PostgreSQL({ trusted, shown, password = '', isPlain }) {
    const contents: Record<string, string | undefined> = {
      'pg-ca.pem': trusted.certPem,
      'pg-cert.pem': shown?.certPem,
      'pg-key.pem': shown?.keyPem,
    };
    const dsn = new URL(postgres.dsn(password, (name) => file(contents[name] ?? '')));
    if (!shown) for (const name of ['sslcert', 'sslkey']) dsn.searchParams.delete(name);
    if (isPlain) dsn.search = '?sslmode=disable';
    return { NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn.href };
  },
  Temporal: ({ trusted, shown, isPlain }) => ({
    TEMPORAL_ADDRESS: `127.0.0.1:${temporal.port}`,
    ...(isPlain
      ? {}
      : {
          TEMPORAL_TLS: 'true',
          TEMPORAL_TLS_SERVER_CA_CERT_PATH: file(trusted.certPem),
          TEMPORAL_TLS_SERVER_NAME: 'localhost',
        }),
    ...(shown && {
      TEMPORAL_TLS_CLIENT_CERT_PATH: file(shown.certPem),
      TEMPORAL_TLS_CLIENT_KEY_PATH: file(shown.keyPem),
    }),
  }),
};

let written = 0;
function file(content: string): string {
  const named = path.join(dataDir, `${(written += 1)}.pem`);
  writeFileSync(named, content, { mode: 0o600 });
  return named;
}

/** As `npm start` does it: everything from the environment. */
async function start(env: Record<string, string>) {
  const config = slot.config(env);
  const { endpoints } = await provideEndpoints(config, ignore);
  const service = await startService({ config, endpoints, log: createLogger('warn', { write: ignore }) });
  cleanups.push(() => service.stop());
  return service;
}

test('I30 an intent is delivered with TLS on every connection, and certificates of ours where they are asked for', async () => {
  const service = await start(environment());
  const id = await publishIntent(
    redis.admin,
    newGameTurnReady({
      idempotencyKey: 'tls',
      occurredAt: Date.now(),
      recipientUserIds: ['user-1'],
      payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
    }),
  );
  await eventually('both entries', async () => {
    const lengths = [
      await redis.admin.xlen('gateway:client-events'),
      await redis.admin.xlen('mail:delivery_commands'),
    ];
    return lengths.every((length) => length === 1);
  });
  expect(id).toMatch(/^\d+-\d+$/);

  const { rows } = await postgres.admin.query<{ ssl: boolean }>(
    `SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'galaxy-notify' AND datname = current_database()`,
  );
  expect(rows).toEqual([{ ssl: true }]);
  await service.stop();
});

describe.each(['Redis', 'PostgreSQL', 'Temporal'] as const)('%s', (store) => {
  const refused = (access: Access) =>
    expect(start(environment({ [store]: access }))).rejects.toThrow(`cannot reach ${store} at `);
  const present = (identity: LoopbackCertificate) =>
    ({ Redis: redis, PostgreSQL: postgres, Temporal: temporal })[store].rotate(
      { server: identity, client: client.own },
      PASSWORD,
    );

  test.each([
    ['shows no certificate', () => ({ shown: undefined })],
    ['shows a foreign certificate', () => ({ shown: client.foreign })],
    ['shows an expired certificate', () => ({ shown: client.expired })],
    ['speaks plainly', () => ({ shown: undefined, isPlain: true })],
    ...(store === 'Temporal'
      ? []
      : ([
          ['has no password', () => ({ password: undefined })],
          ['has the password of another user', () => ({ password: 'Zu-of-somebody-else' })],
        ] as [string, () => Partial<Access>][])),
  ] as [string, () => Partial<Access>][])(
    'security-10 I30 I32 a service that %s is not let in, and says where',
    (_, change) => refused({ ...rightAccess(), ...change() }),
  );

  test.each(['foreign', 'expired', 'ofAnotherName'] as const)(
    'security-10 I30 I32 a server whose certificate is %s stops the start',
    async (kind) => {
      await present(server[kind]);
      try {
        await refused({ ...rightAccess(), trusted: kind === 'foreign' ? server.own : server[kind] });
      } finally {
        await present(server.own);
      }
    },
  );
});

describe('Redis behind sentinels', () => {
  const NAME = 'notifications';
  const SENTINEL_PASSWORD = 'Zu-sentinels-91be37d0';
  /** One is enough to name a master. @param shown what it shows. */
  async function oneSentinel(shown: LoopbackCertificate): Promise<Sentinels> {
    const sentinels = await startSentinels({
      ...{ name: NAME, count: 1, password: SENTINEL_PASSWORD },
      master: { host: '127.0.0.1', port: redis.port },
      tls: { shown, client: client.own, masterPem: server.own.certPem, masterPassword: PASSWORD },
    });
    cleanups.push(() => sentinels.stop());
    return sentinels;
  }
  const through = ({ addresses: [at] }: Sentinels, scheme = 'rediss://') => ({
    ...environment(),
    NOTIFICATION_REDIS_MASTER_ADDR: '',
    NOTIFICATION_REDIS_SENTINELS: `${scheme}${at!.host}:${at!.port}/${NAME}`,
    NOTIFICATION_REDIS_SENTINEL_PASSWORD: SENTINEL_PASSWORD,
  });
  async function expectRefused(env: Record<string, string>): Promise<void> {
    const error = await start(env).then(
      () => undefined,
      (reason: unknown) => reason as Error,
    );
    expect(error?.message).toContain(`cannot reach Redis ${NAME} of the sentinels `);
    for (const secret of [PASSWORD, SENTINEL_PASSWORD]) expect(error!.message).not.toContain(secret);
  }
  let sentinels: Sentinels;
  beforeAll(async () => {
    sentinels = await oneSentinel(server.own);
  });

  test('I91 I30 the master is found through sentinels that speak TLS and ask for a password', async () => {
    const before = (await redis.ages()).length;
    const service = await start(through(sentinels));
    expect((await redis.ages()).length).toBeGreaterThan(before);
    await service.stop();
  });

  test.each<[string, () => Record<string, string>]>([
    ['shows no certificate', () => ({ NOTIFICATION_REDIS_CERT_FILE: '', NOTIFICATION_REDIS_KEY_FILE: '' })],
    ['has no password for them', () => ({ NOTIFICATION_REDIS_SENTINEL_PASSWORD: '' })],
    [
      'has the password of another user',
      () => ({ NOTIFICATION_REDIS_SENTINEL_PASSWORD: 'Zu-of-somebody-else' }),
    ],
    [
      'speaks plainly',
      () => ({
        NOTIFICATION_REDIS_SENTINELS: through(sentinels, '').NOTIFICATION_REDIS_SENTINELS,
        ...{
          NOTIFICATION_REDIS_CA_FILE: '',
          NOTIFICATION_REDIS_CERT_FILE: '',
          NOTIFICATION_REDIS_KEY_FILE: '',
        },
      }),
    ],
  ])('security-10 I91 I30 a service that %s finds no master, and says where', (_, change) =>
    expectRefused({ ...through(sentinels), ...change() }),
  );

  test.each(['foreign', 'expired', 'ofAnotherName'] as const)(
    'security-10 I91 I30 a sentinel whose certificate is %s names no master',
    async (kind) => {
      const outsider = await oneSentinel(server[kind]);
      // The master stays trusted: only the sentinel can be why.
      const trusted = kind === 'foreign' ? [server.own] : [server.own, server[kind]];
      const pem = trusted.map(({ certPem }) => certPem).join('\n');
      await expectRefused({ ...through(outsider), NOTIFICATION_REDIS_CA_FILE: file(pem) });
    },
  );
});

test('I30 files for TLS without TLS, half a pair, and invalid files are refused', () => {
  const right = environment();
  const refused = (change: Record<string, string>) =>
    problemsIn(() => slot.config({ ...right, ...change })).join('\n');
  expect(refused({ NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:6379' })).toMatch(
    /NOTIFICATION_REDIS_MASTER_ADDR must be rediss:/,
  );
  expect(refused({ NOTIFICATION_REDIS_KEY_FILE: '' })).toMatch(/belong together/);
  expect(refused({ NOTIFICATION_REDIS_CA_FILE: path.join(dataDir, 'none.pem') })).toMatch(
    /NOTIFICATION_REDIS_CA_FILE cannot be read: ENOENT/,
  );
  expect(refused({ NOTIFICATION_REDIS_CA_FILE: import.meta.filename })).toMatch(/must name a PEM file/);
  expect(refused({ NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis' })).toMatch(
    /must be host:port, or rediss:/,
  );
});

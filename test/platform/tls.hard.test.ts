/**
 * Connections that are encrypted and both of whose ends are proven: Redis, PostgreSQL, Temporal, each a real server. An
 * outsider tries each of them, as a server and as a client.
 */
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { provideEndpoints } from '../../workers/embedded.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Service } from '../../workers/service.ts';
import { startService } from '../../workers/service.ts';
import { slotOfTests } from '../harness.ts';
import { certificatesOfTests } from '../identities.ts';
import { publishTurn } from '../intent/entries.ts';
import { ofTests } from '../of-tests.ts';
import { scratchFolder } from '../scratch.ts';
import { delivered } from '../service-process.ts';
import { rotatingPostgres, rotatingRedis, rotatingTemporal } from './rotating-servers.ts';

const ignore = () => undefined;
const PASSWORD = 'Zu-7c1e5f0a9b';

const slot = slotOfTests();
const scratch = scratchFolder('tls');
const [server, client] = [certificatesOfTests(), certificatesOfTests()];
const stop = (one: { stop(): unknown }) => one.stop();
const own = () => ({ server: server.own, client: client.own });
const redis = ofTests(() => rotatingRedis(scratch.dir, own(), PASSWORD), stop);
const postgres = ofTests(() => rotatingPostgres(scratch.dir, own(), PASSWORD), stop);
const temporal = ofTests(() => rotatingTemporal(slot.endpoints.temporalAddress!, own()), stop);

/** What the service shows a server, and what it trusts. */
interface Access {
  trusted: LoopbackCertificate;
  /** None: no certificate of the client. */
  shown?: LoopbackCertificate | undefined;
  /** None: no password. */
  password?: string | undefined;
  isPlain?: boolean | undefined;
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
  Redis: ({ trusted, shown, password = '', isPlain }) => ({
    NOTIFICATION_REDIS_MASTER_ADDR: `${isPlain ? '' : 'rediss://'}127.0.0.1:${redis.port}`,
    NOTIFICATION_REDIS_PASSWORD: password,
    NOTIFICATION_REDIS_CA_FILE: isPlain ? '' : file(trusted.certPem),
    NOTIFICATION_REDIS_CERT_FILE: shown ? file(shown.certPem) : '',
    NOTIFICATION_REDIS_KEY_FILE: shown ? file(shown.keyPem) : '',
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
const file = (content: string): string => scratch.write(`${(written += 1)}.pem`, content);

const started: Service[] = [];
afterEach(() => Promise.all(started.splice(0).map(stop)));

/** As `npm start` does it: everything from the environment. */
async function start(env: Record<string, string>): Promise<void> {
  const config = slot.config(env);
  const { endpoints } = await provideEndpoints(config, ignore);
  const service = await startService({ config, endpoints, log: createLogger('warn', { write: ignore }) });
  started.push(service);
}

test('I30 an intent is delivered with TLS on every connection, and certificates of ours where they are asked for', async () => {
  await start(environment());
  await delivered({ redis: redis.admin }, await publishTurn(redis.admin, 'tls'));

  const { rows } = await postgres.admin.query<{ ssl: boolean }>(
    `SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'galaxy-notify' AND datname = current_database()`,
  );
  expect(rows).toEqual([{ ssl: true }]);
});

describe.each<Store>(['Redis', 'PostgreSQL', 'Temporal'])('%s', (store) => {
  async function refused(access: Access): Promise<void> {
    const error = await start(environment({ [store]: access })).then(
      () => undefined,
      (reason: unknown) => reason as Error,
    );
    expect(error?.message).toContain(`cannot reach ${store} at `);
    expect(error!.message).not.toContain(PASSWORD);
  }
  async function present(identity: LoopbackCertificate): Promise<unknown> {
    const servers = { Redis: redis, PostgreSQL: postgres, Temporal: temporal };
    return servers[store].rotate({ server: identity, client: client.own }, PASSWORD);
  }

  const strangers: [string, () => Partial<Access>][] = [
    ['shows no certificate', () => ({ shown: undefined })],
    ['shows a foreign certificate', () => ({ shown: client.foreign })],
    ['shows an expired certificate', () => ({ shown: client.expired })],
    ['speaks plainly', () => ({ shown: undefined, isPlain: true })],
  ];
  if (store !== 'Temporal')
    strangers.push(
      ['has no password', () => ({ password: undefined })],
      ['has the password of another user', () => ({ password: 'Zu-of-somebody-else' })],
    );

  test.each(strangers)('security-10 I30 I32 a service that %s is not let in, and says where', (_, change) =>
    refused({ ...rightAccess(), ...change() }),
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

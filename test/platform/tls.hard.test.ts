/**
 * Connections that are encrypted and both of whose ends are proven. An outsider tries Redis, PostgreSQL and Temporal, each a real
 * server, and the clients with which the service calls others over HTTP: as a server with a wrong, expired or foreign certificate,
 * and as a client with none of the service's proofs. None of it is taken, and no reason quotes a credential.
 * redis-acl.hard.test.ts does the same to users of Redis.
 */
import type { IncomingMessage, RequestListener } from 'node:http';
import { createServer as createPlainServer } from 'node:http';
import { createServer } from 'node:https';
import type { TLSSocket } from 'node:tls';
import type { CallerCredentials, HttpCaller } from '../../activities/http/caller.ts';
import { createHttpCaller, deliver } from '../../activities/http/caller.ts';
import { UserServiceError, createUserService } from '../../activities/intent/user-service.ts';
import { createFcmSender } from '../../activities/mobile-push/fcm.ts';
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import { callbackBody, callbackPath, callbackWebhookId } from '../../api/account-callback/callback.ts';
import { listen } from '../../dev/servers/ports.ts';
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { provideEndpoints } from '../../workers/embedded.ts';
import { createLogger } from '../../workers/logger.ts';
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

const VARIABLES: Record<Store, (access: Access) => Record<string, string>> = {
  Redis: ({ trusted, shown, password = '', isPlain }) => ({
    NOTIFICATION_REDIS_MASTER_ADDR: `${isPlain ? '' : 'rediss://'}127.0.0.1:${redis.port}`,
    NOTIFICATION_REDIS_PASSWORD: password,
    NOTIFICATION_REDIS_CA_FILE: isPlain ? '' : file(trusted.certPem),
    NOTIFICATION_REDIS_CERT_FILE: shown ? file(shown.certPem) : '',
    NOTIFICATION_REDIS_KEY_FILE: shown ? file(shown.keyPem) : '',
  }),
  PostgreSQL({ trusted, shown, password = '', isPlain }) {
    const files = {
      'pg-ca.pem': trusted.certPem,
      'pg-cert.pem': shown?.certPem,
      'pg-key.pem': shown?.keyPem,
    };
    const dsn = new URL(postgres.dsn(password, (name) => file(files[name as keyof typeof files] ?? '')));
    if (!shown) for (const name of ['sslcert', 'sslkey']) dsn.searchParams.delete(name);
    if (isPlain) dsn.search = '?sslmode=disable';
    return { NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn.href };
  },
  Temporal: ({ trusted, shown, isPlain }) => ({
    TEMPORAL_ADDRESS: `127.0.0.1:${temporal.port}`,
    ...(!isPlain && {
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

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stopOne of stops.splice(0).reverse()) await stopOne();
});

/** Starts the service as `npm start` does: everything from the environment. @param changed access to some of the stores. */
async function start(changed: Partial<Record<Store, Access>> = {}): Promise<void> {
  const config = slot.config({
    NOTIFICATION_REDIS_DB: '0',
    NOTIFICATION_USER_SERVICE_BASE_URL: slot.userService.url,
    ...VARIABLES.Redis(changed.Redis ?? rightAccess()),
    ...VARIABLES.PostgreSQL(changed.PostgreSQL ?? rightAccess()),
    ...VARIABLES.Temporal(changed.Temporal ?? rightAccess()),
  });
  const { endpoints } = await provideEndpoints(config, ignore);
  const service = await startService({ config, endpoints, log: createLogger('silent') });
  stops.push(() => service.stop());
}

test('I30 an intent is delivered with TLS on every connection, and certificates of ours where they are asked for', async () => {
  await start();
  await delivered({ redis: redis.admin }, await publishTurn(redis.admin, 'tls'));
});

describe.each<Store>(['Redis', 'PostgreSQL', 'Temporal'])('%s', (store) => {
  async function refused(access: Access): Promise<void> {
    const error = await start({ [store]: access }).catch((reason: unknown) => reason as Error);
    expect(error?.message).toContain(`cannot reach ${store} at `);
    expect(error!.message).not.toContain(PASSWORD);
  }
  const servers = { Redis: redis, PostgreSQL: postgres, Temporal: temporal };
  const present = async (identity: LoopbackCertificate) =>
    servers[store].rotate({ server: identity, client: client.own }, PASSWORD);

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

const TIMEOUT_MS = 5_000;
const TOKEN = 'users-7d41c0e95b28af63';
const DEVICE_TOKEN = 'phone-51be02a7:APA91b';
const SECRET = `whsec_${Buffer.from('the secret of the service, 32 by').toString('base64')}`;
const FOREIGN_SECRET = `whsec_${Buffer.from('the secret of another user, 32 b').toString('base64')}`;
const CALLBACK: CallbackKey & CallbackValues = {
  ...{ userId: 'ann', kind: 'hourly', periodStartMs: 0 },
  ...{ peakValue: '2', peakAtMs: 1, bottomValue: '1', bottomAtMs: 2, closingValue: '1' },
};

/**
 * @param shown undefined: it speaks in plain text.
 * @param known authorities of the clients' certificates that it asks for; default: it asks for none.
 * @returns its URL and its requests.
 */
async function startServer(shown: LoopbackCertificate | undefined, known?: string[]) {
  const calls: IncomingMessage[] = [];
  // What each caller takes for a success.
  const take: RequestListener = (call, response) => {
    calls.push(call);
    call.resume();
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"name":"projects/p/messages/1"}');
  };
  const asking = known ? { requestCert: true, rejectUnauthorized: true, ca: known } : {};
  const started = shown
    ? createServer({ key: shown.keyPem, cert: shown.certPem, ...asking }, take)
    : createPlainServer(take);
  stops.push(() => {
    started.closeAllConnections();
    started.close();
  });
  return { url: `https://127.0.0.1:${await listen(started)}`, calls };
}

function callerWith(credentials: CallerCredentials): HttpCaller {
  const caller = createHttpCaller(credentials);
  stops.push(() => caller.close());
  return caller;
}

const stopped = new AbortController().signal;

type Call = (url: string, caller: HttpCaller) => Promise<string | undefined>;

/** Each call says what is wrong; undefined when it was taken. */
const callBack: Call = async (url, caller) => {
  const { kind, userId } = CALLBACK;
  const body = callbackBody(CALLBACK);
  const request = { method: 'POST', url: url + callbackPath({ kind, userId })!, body } as const;
  const id = callbackWebhookId(CALLBACK);
  return (await deliver({ ...request, timeoutMs: TIMEOUT_MS, stopped, caller, id }))?.message;
};

const lookUp: Call = async (url, caller) => {
  const log = createLogger('fatal');
  const users = createUserService({ baseUrl: url, timeoutMs: TIMEOUT_MS, caller, log });
  const error = await users.findRecipient('ann').catch((reason: unknown) => reason as Error);
  // It has come through: the answer is no user.
  const isTaken = error instanceof UserServiceError && error.message.includes('unusable');
  return isTaken ? undefined : (error as Error).message;
};

async function push(endpoint: string, caPem: string): Promise<string | undefined> {
  const sender = createFcmSender({ target: { endpoint, caPem, projectId: 'galaxy' }, timeoutMs: 60_000 });
  stops.push(() => sender.close());
  const none = { headers: {} };
  const apns = { ...none, payload: { aps: {} } };
  const message = { data: {}, android: { priority: 'high' }, apns, webpush: none };
  const outcome = await sender.send(message, DEVICE_TOKEN);
  // A certificate says nothing about the phone: its token stays, and the push is tried again.
  if (outcome.outcome === 'sent') return undefined;
  expect(outcome.outcome).toBe('retry');
  return 'reason' in outcome ? outcome.reason : '';
}

/** It says what is wrong with the connection, and no credential. */
function expectReason(reason: string | undefined): void {
  expect(reason).toMatch(/certificate|altname|wrong version|packet length|EPROTO|network/i);
  for (const secret of [TOKEN, DEVICE_TOKEN, SECRET]) expect(reason).not.toContain(secret);
}

describe.each<[string, (url: string, trusted: string) => Promise<string | undefined>]>([
  ['a callback', (url, ca) => callBack(url, callerWith({ token: TOKEN, ca, signingSecrets: [SECRET] }))],
  ['a push', push],
])('%s', (_, call) => {
  test('security-10 goes to the right server', async () => {
    const { url, calls } = await startServer(server.own);
    expect(await call(url, server.own.certPem)).toBeUndefined();
    expect(calls).toHaveLength(1);
  });

  test.each(['foreign', 'expired', 'ofAnotherName', 'plain'] as const)(
    'security-10 security-18 does not go to a server whose certificate is %s, and no reason quotes a credential',
    async (kind) => {
      const { url, calls } = await startServer(kind === 'plain' ? undefined : server[kind]);
      const trusted = kind === 'expired' || kind === 'ofAnotherName' ? server[kind] : server.own;
      expectReason(await call(url, trusted.certPem));
      expect(calls).toEqual([]);
    },
  );
});

test.each([
  ['a callback', callBack],
  ['a lookup', lookUp],
])('security-10 %s is made with token, certificate and the signatures of all secrets', async (_, call) => {
  const { url, calls } = await startServer(server.own, [client.own.certPem]);
  const { certPem: cert, keyPem: key } = client.own;
  const caller = callerWith({
    ...{ token: TOKEN, ca: server.own.certPem, cert, key, signingSecrets: [SECRET, FOREIGN_SECRET] },
  });
  expect(await call(url, caller)).toBeUndefined();
  const [{ headers, socket, method }, ...others] = calls as [IncomingMessage];
  expect(others).toEqual([]);
  expect(headers.authorization).toBe(`Bearer ${TOKEN}`);
  expect((socket as TLSSocket).authorized).toBe(true);
  const signature = headers['webhook-signature'];
  expect(method === 'GET' ? signature : String(signature).split(' ')).toEqual(
    method === 'GET' ? undefined : [expect.stringMatching(/^v1,/), expect.stringMatching(/^v1,/)],
  );
});

test('security-10 a client proves itself by what was renewed, from the next call on, and by nothing that is foreign, expired or absent', async () => {
  const { url, calls } = await startServer(server.own, [client.own.certPem, client.expired.certPem]);
  const ca = server.own.certPem;
  const caller = callerWith({ ca, token: TOKEN });
  for (const own of [client.foreign, client.expired, undefined]) {
    caller.use({ ca, token: TOKEN, cert: own?.certPem, key: own?.keyPem });
    // A server that hangs up is tried again, and says little about why.
    const reason = await callBack(url, caller);
    expect(reason).toBeDefined();
    expect(reason).not.toContain(TOKEN);
  }
  expect(() => caller.use({ ca, cert: 'no certificate', key: 'no key' })).toThrow();
  caller.use({ ca, token: 'new', cert: client.own.certPem, key: client.own.keyPem });
  expect(await callBack(url, caller)).toBeUndefined();
  expect(calls.map(({ headers }) => headers.authorization)).toEqual(['Bearer new']);
});

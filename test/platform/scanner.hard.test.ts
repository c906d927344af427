/**
 * An outsider tries each call to a receiver's program: as a server with a wrong, expired or foreign certificate, as a
 * client with none of the service's proofs, and with calls of the service that were caught. None of it is taken.
 * test/platform/tls.hard.test.ts does the same to Redis, PostgreSQL and Temporal, redis-acl.hard.test.ts to users of Redis.
 */
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import { createPortfolioService } from '../../activities/account-callback/delivery.ts';
import type { CallerCredentials, HttpCaller } from '../../activities/http/caller.ts';
import { createHttpCaller } from '../../activities/http/caller.ts';
import { deliver } from '../../activities/http/delivery.ts';
import { UserServiceError, createUserService } from '../../activities/intent/user-service.ts';
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import { pushWebhookId } from '../../api/symbol-config/push.ts';
import type { CallbackReceiver } from '../../client/account-callback/receiver.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Certificates } from '../identities.ts';
import { createCertificates } from '../identities.ts';

const TIMEOUT_MS = 5_000;
const TOKEN = 'users-7d41c0e95b28af63';
const SECRET = `whsec_${Buffer.from('the secret of the service, 32 by').toString('base64')}`;
const FOREIGN_SECRET = `whsec_${Buffer.from('the secret of another user, 32 b').toString('base64')}`;
const CALLBACK: CallbackKey & CallbackValues = {
  ...{ userId: 'ann', kind: 'hourly', periodStartMs: 0 },
  ...{ peakValue: '2', peakAtMs: 1, bottomValue: '1', bottomAtMs: 2, closingValue: '1' },
};

const servers: Server[] = [];
const callers: HttpCaller[] = [];
let server: Certificates;
let client: Certificates;

beforeAll(async () => {
  [server, client] = [await createCertificates(), await createCertificates()];
});

afterEach(() => {
  for (const caller of callers.splice(0)) caller.close();
  for (const one of servers.splice(0)) {
    one.closeAllConnections();
    one.close();
  }
});

/** Takes what comes with a client certificate that it knows, when it asks for one. @returns its URL and its requests. */
async function startServer(
  { keyPem, certPem }: LoopbackCertificate,
  asksFor?: readonly string[],
  answer: (call: IncomingMessage, response: ServerResponse) => void = (_, response) => response.end('{}'),
): Promise<{ url: string; calls: IncomingMessage[] }> {
  const calls: IncomingMessage[] = [];
  const options = asksFor ? { requestCert: true, rejectUnauthorized: true, ca: [...asksFor] } : {};
  const started = createServer({ key: keyPem, cert: certPem, ...options }, (call, response) => {
    calls.push(call);
    answer(call, response);
  });
  started.listen(0, '127.0.0.1');
  servers.push(started);
  await once(started, 'listening');
  return { url: `https://127.0.0.1:${(started.address() as AddressInfo).port}`, calls };
}

function callerWith(credentials: CallerCredentials): HttpCaller {
  const caller = createHttpCaller(credentials);
  callers.push(caller);
  return caller;
}

const stopped = new AbortController().signal;

/** The three calls, each with what is wrong, or undefined when it was taken. */
const CALLS: [string, (url: string, caller: HttpCaller) => Promise<unknown>][] = [
  [
    'a callback',
    (url, caller) =>
      createPortfolioService({ baseUrl: url, timeoutMs: TIMEOUT_MS, caller }).deliver(CALLBACK, stopped),
  ],
  [
    'a push of symbols',
    (url, caller) =>
      deliver({
        ...{ method: 'PUT', url, body: '{"version":1}', timeoutMs: TIMEOUT_MS, stopped, caller },
        id: pushWebhookId('eu', 1),
      }),
  ],
  [
    'a lookup',
    (url, caller) =>
      createUserService({ baseUrl: url, timeoutMs: TIMEOUT_MS, caller, log: createLogger('fatal') })
        .findRecipient('ann')
        .catch((error: unknown) => error),
  ],
];
/** A lookup that is answered `{}` has come through: the answer is no user. */
const isTaken = (outcome: unknown): boolean =>
  outcome === undefined || (outcome instanceof UserServiceError && outcome.message.includes('unusable'));

describe.each(CALLS)('%s', (_, call) => {
  test.each(['foreign', 'expired', 'ofAnotherName'] as const)(
    'security-10 is not made to a server whose certificate is %s',
    async (kind) => {
      const trusted = kind === 'foreign' ? server.own.certPem : server[kind].certPem;
      const { url, calls } = await startServer(server[kind]);
      const caller = callerWith({ token: TOKEN, ca: trusted, signingSecrets: [SECRET] });
      expect(isTaken(await call(url, caller))).toBe(false);
      expect(calls).toEqual([]);
    },
  );

  test('security-10 is made to the right server, with token, certificate and signature', async () => {
    const { url, calls } = await startServer(server.own, [client.own.certPem]);
    const { certPem: cert, keyPem: key } = client.own;
    const caller = callerWith({
      ...{ token: TOKEN, ca: server.own.certPem, cert, key, signingSecrets: [SECRET, FOREIGN_SECRET] },
    });
    expect(isTaken(await call(url, caller))).toBe(true);
    expect(calls).toHaveLength(1);
    const [{ headers, socket, method }] = calls as [IncomingMessage];
    expect(headers.authorization).toBe(`Bearer ${TOKEN}`);
    expect((socket as TLSSocket).authorized).toBe(true);
    const signature = headers['webhook-signature'];
    expect(method === 'GET' ? signature : String(signature).split(' ')).toEqual(
      method === 'GET' ? undefined : [expect.stringMatching(/^v1,/), expect.stringMatching(/^v1,/)],
    );
  });

  test.each(['foreign', 'expired'] as const)(
    'security-10 is not taken with a client certificate that is %s, nor without any',
    async (kind) => {
      const { url, calls } = await startServer(server.own, [client.own.certPem, client.expired.certPem]);
      const { certPem: cert, keyPem: key } = client[kind];
      for (const shown of [{ cert, key }, {}]) {
        expect(isTaken(await call(url, callerWith({ ca: server.own.certPem, ...shown })))).toBe(false);
      }
      expect(calls).toEqual([]);
    },
  );

  test('security-10 proves itself by what was renewed, from the next call on', async () => {
    const { url, calls } = await startServer(server.own, [client.own.certPem]);
    const ca = server.own.certPem;
    const caller = callerWith({ ca, token: 'old', cert: client.foreign.certPem, key: client.foreign.keyPem });
    expect(isTaken(await call(url, caller))).toBe(false);
    expect(() => caller.use({ ca, cert: 'no certificate', key: 'no key' })).toThrow();
    caller.use({ ca, token: 'new', cert: client.own.certPem, key: client.own.keyPem });
    expect(isTaken(await call(url, caller))).toBe(true);
    expect(calls.map(({ headers }) => headers.authorization)).toEqual(['Bearer new']);
  });
});

describe('calls that were caught', () => {
  interface Caught {
    path: string;
    headers: Record<string, string>;
    body: string;
  }

  /** A portfolio service as one is built with the receiver, and a call of the service that an attacker has caught. */
  async function catchOne(): Promise<{
    store: ReturnType<typeof memoryCallbackStore>;
    send: Send;
    caught: Caught;
  }> {
    const store = memoryCallbackStore();
    const silent = { info: () => undefined, error: () => undefined };
    const receiver: CallbackReceiver = createCallbackReceiver({ store, log: silent, secrets: [SECRET] });
    const caught: Caught[] = [];
    const { url } = await startServer(server.own, undefined, (call, response) => {
      void (async () => {
        const chunks: Buffer[] = [];
        for await (const chunk of call as AsyncIterable<Buffer>) chunks.push(chunk);
        const body = Buffer.concat(chunks).toString('utf8');
        caught.push({ path: call.url!, headers: call.headers as Record<string, string>, body });
        const { status, answer } = await receiver.answer({ path: call.url!, headers: call.headers, body });
        response.writeHead(status).end(JSON.stringify(answer));
      })();
    });
    const caller = callerWith({ ca: server.own.certPem, signingSecrets: [SECRET] });
    const service = createPortfolioService({ baseUrl: url, timeoutMs: TIMEOUT_MS, caller });
    expect(await service.deliver(CALLBACK, stopped)).toBeUndefined();
    const stranger = callerWith({ ca: server.own.certPem });
    const send: Send = async ({ path, headers, body }) => {
      const { 'content-length': _length, host: _host, connection: _, ...others } = headers;
      const response = await stranger.request(url + path, {
        ...{ method: 'POST', headers: others, body, signal: stopped },
      });
      return { status: response.statusCode!, answer: (await json(response)) as object };
    };
    return { store, send, caught: caught[0]! };
  }
  type Send = (caught: Caught) => Promise<{ status: number; answer: object }>;

  test('security-10 a repeat changes nothing, and is refused once it is late', async () => {
    const { store, send, caught } = await catchOne();
    const held = store.get(CALLBACK);
    expect(await send(caught)).toEqual({ status: 200, answer: { outcome: 'unchanged' } });
    const late = String(Math.floor(Date.now() / 1_000) - 301);
    const headers = { ...caught.headers, 'webhook-timestamp': late };
    expect(await send({ ...caught, headers })).toMatchObject({ status: 401 });
    expect(store.get(CALLBACK)).toEqual(held);
  });

  test('security-10 nothing that was altered is taken: 0 of all single changes', async () => {
    const { store, send, caught } = await catchOne();
    const held = store.get(CALLBACK);
    const { headers, body, path } = caught;
    const alterations: Caught[] = [
      ...Array.from(body, (character, at) => ({
        ...caught,
        body: body.slice(0, at) + (character === '1' ? '2' : '1') + body.slice(at + 1),
      })),
      ...['webhook-id', 'webhook-timestamp', 'webhook-signature'].flatMap((name) => [
        { ...caught, headers: { ...headers, [name]: `${headers[name]}1` } },
        { ...caught, headers: { ...headers, [name]: 'x' } },
      ]),
      { ...caught, path: path.replace('/ann/', '/bob/') },
      { ...caught, path: path.replace('hourly', 'daily') },
      {
        ...caught,
        headers: { ...headers, 'webhook-signature': headers['webhook-signature']!.replace('v1,', 'v2,') },
      },
    ].filter((altered) => JSON.stringify(altered) !== JSON.stringify(caught));
    const statuses = new Set<number>();
    for (const altered of alterations) {
      // Without it, only the signature stands between the two users.
      const { 'idempotency-key': _, ...others } = altered.headers;
      statuses.add((await send({ ...altered, headers: others })).status);
    }
    expect([...statuses]).toEqual([401]);
    expect(store.get(CALLBACK)).toEqual(held);
    expect(store.get({ ...CALLBACK, userId: 'bob' })).toBeUndefined();
  });
});

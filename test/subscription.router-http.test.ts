/** The adapter toward routers: what is sent over which connection, and what is made of every kind of answer. */
import { createServer } from 'node:https';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { X509Certificate, randomBytes } from 'node:crypto';
import { fingerprintOf } from '../activities/router-connection.ts';
import { createMessagingRouter, createNotificationRouter } from '../activities/router-http.ts';
import type {
  ItemResult,
  MessagingRouter,
  NotificationRouter,
  NotifierKeyRequest,
  QueueRef,
  RouterAddress,
  RouterResult,
  TokenRef,
} from '../activities/router-ports.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../activities/router-signing.ts';
import { createLoopbackCertificate } from '../dev/fcm-certificate.ts';
import type { MessagingRouterStandIn } from '../dev/messaging-router.ts';
import { startMessagingRouter } from '../dev/messaging-router.ts';
import type { RouterFailure } from '../dev/router-server.ts';
import { eventually } from './harness.ts';
import type { Routers } from './routers.ts';
import { startRouters } from './routers.ts';

/** Long enough to be reached only by what never ends. */
const PATIENT = { commandTimeoutMs: 20_000, connectTimeoutMs: 20_000 };

let routers: Routers;
let smp: MessagingRouterStandIn;
let messaging: MessagingRouter;
let notifications: NotificationRouter;
let cleanUps: (() => Promise<unknown>)[];

beforeEach(async () => {
  routers = await startRouters();
  smp = routers.smp[0]!;
  messaging = createMessagingRouter(PATIENT);
  notifications = createNotificationRouter(PATIENT);
  cleanUps = [];
});

afterEach(async () => {
  await Promise.all([messaging.close(), notifications.close()]);
  await Promise.all([...cleanUps.map((cleanUp) => cleanUp()), routers.stop()]);
});

async function makeQueue(address: RouterAddress, userId = 1, connId = 'c'): Promise<QueueRef> {
  const recipient = generateAuthKeys();
  const made = valueOf(
    await messaging.createQueue({
      address,
      userId,
      recipientPublicKey: recipient.publicKey,
      recipientPrivateKey: recipient.privateKey,
    }),
  );
  return {
    address,
    userId,
    connId,
    recipientId: made.recipientId,
    recipientPrivateKey: recipient.privateKey,
  };
}

const makeQueues = (address: RouterAddress, count: number, userId = 1): Promise<QueueRef[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => makeQueue(address, userId, `c${index}`)));

function keyRequest(queue: QueueRef): NotifierKeyRequest {
  return {
    queue,
    notifierPublicKey: generateAuthKeys().publicKey,
    recipientDhPublicKey: generateDhKeys().publicKey,
  };
}

async function makeToken(address: RouterAddress): Promise<TokenRef> {
  const auth = generateAuthKeys();
  const dh = generateDhKeys();
  const device = { provider: 'AT' as const, token: randomBytes(32).toString('hex') };
  const { tokenId } = valueOf(
    await notifications.registerToken({ address, device, auth, dhPublicKey: dh.publicKey }),
  );
  return { address, tokenId, privateKey: auth.privateKey };
}

function valueOf<T>(result: RouterResult<T>): T {
  if (!result.ok) throw new Error(JSON.stringify(result.error));
  return result.value;
}

const outcome = (result: RouterResult<unknown>): string =>
  result.ok ? 'ok' : `${result.error.source} ${result.error.code}`;
const outcomesById = (results: ItemResult<QueueRef, unknown>[]): Record<string, string> =>
  Object.fromEntries(results.map(({ item, result }) => [item.connId, outcome(result)]));

/** A server that is no router, and answers as it likes. */
async function serverAnswering(listener: RequestListener): Promise<RouterAddress> {
  const { keyPem, certPem } = createLoopbackCertificate();
  const server = createServer({ key: keyPem, cert: certPem }, listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUps.push(async () => {
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  });
  const keyHash = fingerprintOf(new X509Certificate(certPem).raw);
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port, keyHash };
}

/** A router up to its handshake. */
const answeringCommands = (listener: RequestListener): Promise<RouterAddress> =>
  serverAnswering((request, response) => {
    if (request.method === 'GET') response.end('{"protocol":"ntf","min":1,"max":3}');
    else listener(request, response);
  });

const tokenAt = (address: RouterAddress): TokenRef => ({
  address,
  tokenId: randomBytes(24).toString('base64url'),
  privateKey: generateAuthKeys().privateKey,
});
const SUBS = ['a', 'b', 'c'].map((letter) => letter.repeat(32));

describe('the way there', () => {
  test('N17 another certificate than the one of the address is an unknown CA, and nothing is sent to it', async () => {
    const elsewhere = { ...smp.address, keyHash: (await startedAndStopped()).keyHash };
    const queue = { ...(await makeQueue(smp.address)), address: elsewhere };
    const before = smp.calls.length;

    expect((await messaging.deleteNotifierKeys([queue]))[0]!.result).toEqual({
      ok: false,
      error: { source: 'BROKER', code: 'NETWORK', detail: 'unknown CA' },
    });
    expect(smp.calls.length).toBe(before);
  });

  test('N17 nobody listening fails every item with an error of the network', async () => {
    const [first, second] = await makeQueues(smp.address, 2);
    await smp.stop();

    const results = await messaging.deleteNotifierKeys([first!, second!]);
    expect(outcomesById(results)).toEqual({ c0: 'BROKER NETWORK', c1: 'BROKER NETWORK' });
    await smp.start();
    expect(outcomesById(await messaging.deleteNotifierKeys([first!, second!]))).toEqual({
      c0: 'ok',
      c1: 'ok',
    });
  });

  test('N17 a name that leads nowhere is an error of the host', async () => {
    const address = { ...smp.address, host: 'router.invalid' };

    expect(['BROKER HOST', 'BROKER NETWORK']).toContain(outcome(await notifications.ping(address)));
  });

  test('N17 a peer that does not finish the TLS handshake is given up after the connect time-out', async () => {
    const { createServer: createTcpServer } = await import('node:net');
    const silent = createTcpServer(() => undefined).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const impatient = createNotificationRouter({ ...PATIENT, connectTimeoutMs: 1_000 });
    cleanUps.push(async () => impatient.close());
    const port = (silent.address() as AddressInfo).port;
    silent.unref();

    const result = await impatient.ping({ ...smp.address, port });
    expect(outcome(result)).toBe('BROKER NETWORK');
    silent.close();
  });

  test('N17 a router of the other kind is not spoken to', async () => {
    expect(outcome(await notifications.ping(smp.address))).toBe('BROKER UNEXPECTED');
    expect(smp.calls).toEqual([]);
  });

  test('N17 without a common version there is an error of the host, until there is one', async () => {
    const old = createNotificationRouter({ ...PATIENT, newestVersion: 0 });
    cleanUps.push(() => old.close());

    expect(outcome(await old.ping(routers.ntf[0]!.address))).toBe('BROKER VERSION');
    expect(outcome(await notifications.ping(routers.ntf[0]!.address))).toBe('ok');
  });

  test('N17 connections are kept: many batches of a session come over few', async () => {
    const queue = await makeQueue(smp.address);
    const opened = smp.sockets.opened;
    for (let round = 0; round < 20; round++) await messaging.deleteNotifierKeys([queue]);

    expect(smp.sockets.opened).toBe(opened);
    await Promise.all(Array.from({ length: 40 }, () => messaging.deleteNotifierKeys([queue])));
    expect(smp.sockets.opened).toBeLessThanOrEqual(4);
  });

  test('N17 closing ends what is under way, and nothing is sent any more', async () => {
    const queue = await makeQueue(smp.address);
    smp.fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
    const underWay = messaging.deleteNotifierKeys([queue]);
    await eventually('the command to arrive', async () => smp.calls.some(({ op }) => op === 'NDEL'));

    await messaging.close();
    expect(outcomesById(await underWay)).toEqual({ c: 'AGENT INACTIVE' });
    const calls = smp.calls.length;
    expect(outcomesById(await messaging.deleteNotifierKeys([queue]))).toEqual({ c: 'AGENT INACTIVE' });
    expect(smp.calls.length).toBe(calls);
  });

  async function startedAndStopped(): Promise<RouterAddress> {
    const other = await startMessagingRouter();
    await other.stop();
    return other.address;
  }
});

describe('batches', () => {
  test('N17 one batch for each user and server, over connections of their own', async () => {
    const second = await startMessagingRouter();
    cleanUps.push(() => second.stop());
    const queues = [
      ...(await makeQueues(smp.address, 3, 1)),
      ...(await makeQueues(smp.address, 2, 2)),
      ...(await makeQueues(second.address, 4, 1)),
    ];
    const [from, fromSecond] = [smp.batches.length, second.batches.length];

    const results = await messaging.createNotifierKeys(queues.map(keyRequest));
    expect(results.map(({ result }) => outcome(result))).toEqual(Array(9).fill('ok'));
    const sizes = smp.batches.slice(from).map(({ size }) => size);
    expect(sizes.sort()).toEqual([2, 3]);
    expect(second.batches.slice(fromSecond).map(({ size }) => size)).toEqual([4]);
    const connections = smp.batches.slice(from).map(({ connection }) => connection);
    expect(new Set(connections).size).toBe(2);
  });

  test('N17 results carry their item', async () => {
    const queues = await makeQueues(smp.address, 10);
    const requests = queues.map((queue) => ({ queue, dh: generateDhKeys(), ...generateAuthKeys() }));
    const results = await messaging.createNotifierKeys(
      requests.map(({ queue, dh, publicKey }) => ({
        queue,
        notifierPublicKey: publicKey,
        recipientDhPublicKey: dh.publicKey,
      })),
    );

    for (const { item, result } of results) {
      const { notifierId, routerDhPublicKey } = valueOf(result);
      const { dh } = requests.find(({ queue }) => queue === item.queue)!;
      const stored = smp.queues().find(({ recipientId }) => recipientId === item.queue.recipientId)!;
      expect(stored.notifier).toMatchObject({
        notifierId,
        notifierKey: item.notifierPublicKey.toString('base64url'),
        secret: dhSecret(routerDhPublicKey, dh.privateKey).toString('base64url'),
      });
    }
  });

  test('N17 a batch is packed into blocks of bounded size, in order', async () => {
    const queues = await makeQueues(smp.address, 150);
    await messaging.createNotifierKeys(queues.map(keyRequest));

    const { size, blocks } = smp.batches.at(-1)!;
    expect(size).toBe(150);
    // 16,384 − 19 bytes of some 304 each.
    expect(blocks.length).toBe(3);
    expect(Math.max(...blocks)).toBeLessThanOrEqual(54);
    expect(smp.calls.slice(-150).map(({ entity }) => entity)).toEqual(
      queues.map(({ recipientId }) => recipientId),
    );
    expect(smp.calls.slice(-150).every(({ answer }) => answer === 'NID')).toBe(true);
  });

  test('N17 a block of a notification router holds one SNEW or two SCHK', async () => {
    const [ntf] = routers.ntf;
    const token = await makeToken(ntf!.address);
    const result = await notifications.checkSubscriptions(token, SUBS);

    expect(result.map(outcome)).toEqual(['NTF AUTH', 'NTF AUTH', 'NTF AUTH']);
    expect(ntf!.batches.at(-1)).toMatchObject({ size: 3, blocks: [2, 1] });
    const requests = SUBS.map((notifierId) => ({
      messagingRouter: smp.address,
      notifierId,
      notifierPrivateKey: generateAuthKeys().privateKey,
    }));
    expect((await notifications.createSubscriptions(token, requests)).map(outcome)).toEqual(
      Array(3).fill('NTF AUTH'),
    );
    expect(ntf!.batches.at(-1)).toMatchObject({ size: 3, blocks: [1, 1, 1] });
  });

  test('N17 a router of version 1 gets one command in a block', async () => {
    const old = await startRouters({ smp: 0, ntfVersion: 1 });
    cleanUps.push(() => old.stop());
    const token = await makeToken(old.ntf[0]!.address);
    await notifications.checkSubscriptions(token, SUBS);

    expect(old.ntf[0]!.batches.at(-1)).toMatchObject({ size: 3, blocks: [1, 1, 1], version: 1 });
  });

  test('N17 a command that fits no block fails for good, and alone', async () => {
    const [ntf] = routers.ntf;
    const token = await makeToken(ntf!.address);
    const request = (host: string) => ({
      messagingRouter: { ...smp.address, host },
      notifierId: SUBS[0]!,
      notifierPrivateKey: generateAuthKeys().privateKey,
    });
    const results = await notifications.createSubscriptions(token, [
      request('a'.repeat(200)),
      request('127.0.0.1'),
    ]);

    expect(results.map(outcome)).toEqual(['BROKER TRANSPORT', 'NTF AUTH']);
    expect(ntf!.batches.at(-1)!.size).toBe(1);
  });

  test('N17 an older messaging router makes the queue without its notifier', async () => {
    const old = await startMessagingRouter({ version: 16 });
    cleanUps.push(() => old.stop());
    const ask = async (address: RouterAddress) => {
      const { publicKey: recipientPublicKey, privateKey: recipientPrivateKey } = generateAuthKeys();
      const notifier = {
        notifierPublicKey: generateAuthKeys().publicKey,
        recipientDhPublicKey: generateDhKeys().publicKey,
      };
      return valueOf(
        await messaging.createQueue({ address, recipientPublicKey, recipientPrivateKey, notifier }),
      );
    };

    expect((await ask(old.address)).notifier).toBeUndefined();
    expect((await ask(smp.address)).notifier?.routerDhPublicKey.length).toBe(32);
  });

  test('N17 nothing to do is nothing sent', async () => {
    const token = tokenAt(routers.ntf[0]!.address);

    expect(await messaging.createNotifierKeys([])).toEqual([]);
    expect(await notifications.createSubscriptions(token, [])).toEqual([]);
    expect(await notifications.checkSubscriptions(token, [])).toEqual([]);
    expect(routers.ntf[0]!.batches).toEqual([]);
  });
});

describe('answers', () => {
  test.each<[string, RouterFailure, string]>([
    ['an error', { kind: 'error', code: 'QUOTA' }, 'SMP QUOTA'],
    ['an error that the router names INTERNAL', { kind: 'error', code: 'INTERNAL' }, 'SMP INTERNAL'],
    ['no answer to it', { kind: 'omit' }, 'BROKER TRANSPORT'],
    ['a line that is no JSON', { kind: 'line', line: '<html>' }, 'BROKER RESPONSE'],
    ['JSON that is no answer', { kind: 'line', line: '[1]' }, 'BROKER RESPONSE'],
    ['an answer to nobody', { kind: 'line', line: '{"id":"77","answer":{"op":"OK"}}' }, 'BROKER RESPONSE'],
    ['an unknown answer', { kind: 'answer', answer: { op: 'WHAT' } }, 'BROKER RESPONSE'],
    ['the answer to another command', { kind: 'answer', answer: { op: 'PONG' } }, 'BROKER UNEXPECTED'],
    [
      'an answer of the wrong shape',
      { kind: 'answer', answer: { op: 'IDS', recipientId: 7 } },
      'BROKER RESPONSE',
    ],
    ['an error without a code', { kind: 'answer', answer: { op: 'ERR' } }, 'BROKER RESPONSE'],
  ])('N2 %s is that of one item; its siblings have theirs', async (_what, failure, expected) => {
    const queues = await makeQueues(smp.address, 3);
    smp.fail({ failure, subject: `NDEL ${queues[1]!.recipientId}` });

    expect(outcomesById(await messaging.deleteNotifierKeys(queues))).toEqual({
      c0: 'ok',
      c1: expected,
      c2: 'ok',
    });
  });

  test('N2 of two that time out and one that is refused, each has its own answer, and the others are done', async () => {
    const impatient = createMessagingRouter({ ...PATIENT, commandTimeoutMs: 1_000 });
    cleanUps.push(() => impatient.close());
    const queues = await makeQueues(smp.address, 5);
    smp.fail({ failure: { kind: 'silence' }, subject: `NDEL ${queues[0]!.recipientId}` });
    smp.fail({ failure: { kind: 'silence' }, subject: `NDEL ${queues[3]!.recipientId}` });
    smp.fail({ failure: { kind: 'error', code: 'AUTH' }, subject: `NDEL ${queues[1]!.recipientId}` });

    expect(outcomesById(await impatient.deleteNotifierKeys(queues))).toEqual({
      c0: 'BROKER TIMEOUT',
      c1: 'SMP AUTH',
      c2: 'ok',
      c3: 'BROKER TIMEOUT',
      c4: 'ok',
    });
    smp.heal();
    expect(outcomesById(await impatient.deleteNotifierKeys(queues))).toMatchObject({ c0: 'ok', c3: 'ok' });
  });

  test('N2 an answer that comes late, but in time, is one', async () => {
    const queues = await makeQueues(smp.address, 2);
    smp.fail({ failure: { kind: 'delay', ms: 200 }, subject: `NDEL ${queues[0]!.recipientId}` });

    expect(outcomesById(await messaging.deleteNotifierKeys(queues))).toEqual({ c0: 'ok', c1: 'ok' });
  });

  test('N2 a connection that breaks fails what was not answered with an error of the network', async () => {
    const queues = await makeQueues(smp.address, 2);
    smp.fail({ failure: { kind: 'reset' }, subject: 'NDEL', times: 1 });

    expect(outcomesById(await messaging.deleteNotifierKeys(queues))).toMatchObject({ c0: 'BROKER NETWORK' });
    expect(outcomesById(await messaging.deleteNotifierKeys(queues))).toEqual({ c0: 'ok', c1: 'ok' });
  });

  test.each([
    [500, 'BROKER NETWORK'],
    [503, 'BROKER NETWORK'],
    [429, 'BROKER NETWORK'],
    [404, 'BROKER UNEXPECTED'],
    [204, 'BROKER UNEXPECTED'],
  ])('N2 status %i fails the batch as %s', async (status, expected) => {
    const queues = await makeQueues(smp.address, 2);
    smp.fail({ failure: { kind: 'status', status, body: 'no' }, times: 1 });

    expect(outcomesById(await messaging.deleteNotifierKeys(queues))).toEqual({ c0: expected, c1: expected });
  });

  test('N2 nothing is followed elsewhere', async () => {
    let requests = 0;
    const address = await answeringCommands((_request, response) => {
      requests += 1;
      response.writeHead(307, { location: `${routers.ntf[0]!.url}/ntf/commands` }).end();
    });

    expect(outcome(await notifications.checkToken(tokenAt(address)))).toBe('BROKER UNEXPECTED');
    expect(requests).toBe(1);
    expect(routers.ntf[0]!.calls).toEqual([]);
  });

  test('N2 an endless answer is cut off', async () => {
    let cutOff: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => (cutOff = resolve));
    const address = await answeringCommands((_request, response) => {
      response.once('close', cutOff).writeHead(200);
      const more = () =>
        void (response.writable && response.write('x'.repeat(16_384), () => setImmediate(more)));
      more();
    });

    const result = await notifications.checkSubscriptions(tokenAt(address), SUBS);
    expect(result.map(outcome)).toEqual(Array(3).fill('BROKER RESPONSE'));
    await ended;
  });

  test('N2 endless short lines are cut off too', async () => {
    const address = await answeringCommands((_request, response) => {
      response.writeHead(200);
      const more = () =>
        void (response.writable && response.write('{}\n'.repeat(5_000), () => setImmediate(more)));
      more();
    });

    expect(outcome(await notifications.checkToken(tokenAt(address)))).toBe('BROKER RESPONSE');
  });

  test('N2 the first answer to a command counts, and those before a broken one', async () => {
    const address = await answeringCommands((_request, response) => {
      response.write('{"id":"1","answer":{"op":"SUB","status":"ACTIVE"}}\n');
      response.write('{"id":"1","answer":{"op":"SUB","status":"END"}}\n');
      response.write('{"id":"2","answer":{"op":"SUB","status":"ERR no such thing"}}\n');
      response.end('{"id":"3","answer":{"op":"SUB","stat');
    });

    const results = await notifications.checkSubscriptions(tokenAt(address), SUBS);
    expect(results.map((result) => (result.ok ? result.value : outcome(result)))).toEqual([
      'ACTIVE',
      'ERR no such thing',
      'BROKER RESPONSE',
    ]);
  });

  test('N2 answers come in the order of the questions, whatever order they had', async () => {
    const address = await answeringCommands((_request, response) => {
      const lines = ['3', '1', '2'].map((id) => `{"id":"${id}","answer":{"op":"SUB","status":"ERR ${id}"}}`);
      response.end(lines.join('\n'));
    });

    const results = await notifications.checkSubscriptions(tokenAt(address), SUBS);
    expect(results.map((result) => result.ok && result.value)).toEqual(['ERR 1', 'ERR 2', 'ERR 3']);
  });

  test.each(['', '{}', '[]', '{"protocol":"smp","min":1,"max":3}', 'x'.repeat(10_000)])(
    'N2 a handshake that is none fails the batch',
    async (body) => {
      const address = await serverAnswering((_request, response) => response.end(body));

      const results = await notifications.checkSubscriptions(tokenAt(address), SUBS);
      expect(results.map(outcome)).toEqual(Array(3).fill('BROKER RESPONSE'));
    },
  );

  test('N2 the detail of an error holds nothing that a log or a row could not take', async () => {
    const token = await makeToken(routers.ntf[0]!.address);
    routers.ntf[0]!.fail({ failure: { kind: 'error', code: 'INTERNAL', detail: 'a\0b\nc\ud800' } });

    expect(await notifications.checkToken(token)).toEqual({
      ok: false,
      error: { source: 'NTF', code: 'INTERNAL', detail: 'a b c' },
    });
  });
});

/** The adapter toward routers: what is sent over which connection, and how it is packed. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { createNotificationRouter } from '../../activities/subscription/router/http.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { eventually } from '../eventually.ts';
import type { RouterAdapter } from './router-adapter.ts';
import {
  PATIENT,
  SUBSCRIPTION_IDS,
  keyRequest,
  outcomesById,
  startRouterAdapter,
  tokenAt,
} from './router-adapter.ts';
import { outcomeOf, valueOf } from './router-agent.ts';
import { startRouters } from './routers.ts';

let adapter: RouterAdapter;

beforeEach(async () => {
  adapter = await startRouterAdapter();
});
afterEach(() => adapter.stop());

describe('the way there', () => {
  test('N17 another certificate than the one of the address is an unknown CA, and nothing is sent to it', async () => {
    const elsewhere = { ...adapter.smp.address, keyHash: (await startedAndStopped()).keyHash };
    const queue = { ...(await adapter.makeQueue(adapter.smp.address)), address: elsewhere };
    const before = adapter.smp.calls.length;

    expect((await adapter.messaging.deleteNotifierKeys([queue]))[0]!.result).toEqual({
      ok: false,
      error: { source: 'BROKER', code: 'NETWORK', detail: 'unknown CA' },
    });
    expect(adapter.smp.calls.length).toBe(before);
  });

  test('N17 nobody listening fails every item with an error of the network', async () => {
    const [first, second] = await adapter.makeQueues(adapter.smp.address, 2);
    await adapter.smp.stop();

    const results = await adapter.messaging.deleteNotifierKeys([first!, second!]);
    expect(outcomesById(results)).toEqual({ c0: 'BROKER NETWORK', c1: 'BROKER NETWORK' });
    await adapter.smp.start();
    expect(outcomesById(await adapter.messaging.deleteNotifierKeys([first!, second!]))).toEqual({
      c0: 'ok',
      c1: 'ok',
    });
  });

  test('N17 a name that leads nowhere is an error of the host', async () => {
    const address = { ...adapter.smp.address, host: 'router.invalid' };

    expect(['BROKER HOST', 'BROKER NETWORK']).toContain(outcomeOf(await adapter.notifications.ping(address)));
  });

  test('N17 a peer that does not finish the TLS handshake is given up after the connect time-out', async () => {
    // It reads, so that it notices when the other side hangs up; otherwise its end would stay open for ever.
    const silent = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const impatient = createNotificationRouter({ ...PATIENT, connectTimeoutMs: 1_000 });
    adapter.afterwards(async () => impatient.close());
    const port = (silent.address() as AddressInfo).port;
    silent.unref();

    const result = await impatient.ping({ ...adapter.smp.address, port });
    expect(outcomeOf(result)).toBe('BROKER NETWORK');
    silent.close();
  });

  test('N17 a router of the other kind is not spoken to', async () => {
    expect(outcomeOf(await adapter.notifications.ping(adapter.smp.address))).toBe('BROKER UNEXPECTED');
    expect(adapter.smp.calls).toEqual([]);
  });

  test('N17 without a common version there is an error of the host, until there is one', async () => {
    const old = createNotificationRouter({ ...PATIENT, newestVersion: 0 });
    adapter.afterwards(() => old.close());

    expect(outcomeOf(await old.ping(adapter.ntf.address))).toBe('BROKER VERSION');
    expect(outcomeOf(await adapter.notifications.ping(adapter.ntf.address))).toBe('ok');
  });

  test('N17 connections are kept: many batches of a session come over few', async () => {
    const queue = await adapter.makeQueue(adapter.smp.address);
    const opened = adapter.smp.sockets.opened;
    for (let round = 0; round < 20; round++) await adapter.messaging.deleteNotifierKeys([queue]);

    expect(adapter.smp.sockets.opened).toBe(opened);
    await Promise.all(Array.from({ length: 40 }, () => adapter.messaging.deleteNotifierKeys([queue])));
    expect(adapter.smp.sockets.opened).toBeLessThanOrEqual(4);
  });

  test('N17 closing ends what is under way, and nothing is sent any more', async () => {
    const queue = await adapter.makeQueue(adapter.smp.address);
    adapter.smp.fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
    const underWay = adapter.messaging.deleteNotifierKeys([queue]);
    await eventually('the command to arrive', async () => adapter.smp.calls.some(({ op }) => op === 'NDEL'));

    await adapter.messaging.close();
    expect(outcomesById(await underWay)).toEqual({ c: 'AGENT INACTIVE' });
    const calls = adapter.smp.calls.length;
    expect(outcomesById(await adapter.messaging.deleteNotifierKeys([queue]))).toEqual({
      c: 'AGENT INACTIVE',
    });
    expect(adapter.smp.calls.length).toBe(calls);
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
    adapter.afterwards(() => second.stop());
    const queues = [
      ...(await adapter.makeQueues(adapter.smp.address, 3, 1)),
      ...(await adapter.makeQueues(adapter.smp.address, 2, 2)),
      ...(await adapter.makeQueues(second.address, 4, 1)),
    ];
    const [from, fromSecond] = [adapter.smp.batches.length, second.batches.length];

    const results = await adapter.messaging.createNotifierKeys(queues.map(keyRequest));
    expect(results.map(({ result }) => outcomeOf(result))).toEqual(Array(9).fill('ok'));
    const sizes = adapter.smp.batches.slice(from).map(({ size }) => size);
    expect(sizes.sort()).toEqual([2, 3]);
    expect(second.batches.slice(fromSecond).map(({ size }) => size)).toEqual([4]);
    const connections = adapter.smp.batches.slice(from).map(({ connection }) => connection);
    expect(new Set(connections).size).toBe(2);
  });

  test('N17 results carry their item', async () => {
    const queues = await adapter.makeQueues(adapter.smp.address, 10);
    const requests = queues.map((queue) => ({ queue, dh: generateDhKeys(), ...generateAuthKeys() }));
    const results = await adapter.messaging.createNotifierKeys(
      requests.map(({ queue, dh, publicKey }) => ({
        queue,
        notifierPublicKey: publicKey,
        recipientDhPublicKey: dh.publicKey,
      })),
    );

    for (const { item, result } of results) {
      const { notifierId, routerDhPublicKey } = valueOf(result);
      const { dh } = requests.find(({ queue }) => queue === item.queue)!;
      const stored = adapter.smp.queues().find(({ recipientId }) => recipientId === item.queue.recipientId)!;
      expect(stored.notifier).toMatchObject({
        notifierId,
        notifierKey: item.notifierPublicKey.toString('base64url'),
        secret: dhSecret(routerDhPublicKey, dh.privateKey).toString('base64url'),
      });
    }
  });

  test('N17 a batch is packed into blocks of bounded size, in order', async () => {
    const queues = await adapter.makeQueues(adapter.smp.address, 150);
    await adapter.messaging.createNotifierKeys(queues.map(keyRequest));

    const { size, blocks } = adapter.smp.batches.at(-1)!;
    expect(size).toBe(150);
    // 16,384 − 19 bytes of some 304 each.
    expect(blocks.length).toBe(3);
    expect(Math.max(...blocks)).toBeLessThanOrEqual(54);
    expect(adapter.smp.calls.slice(-150).map(({ entity }) => entity)).toEqual(
      queues.map(({ recipientId }) => recipientId),
    );
    expect(adapter.smp.calls.slice(-150).every(({ answer }) => answer === 'NID')).toBe(true);
  });

  test('N17 a block of a notification router holds one SNEW or two SCHK', async () => {
    const { ntf } = adapter;
    const token = await adapter.makeToken(ntf.address);
    const result = await adapter.notifications.checkSubscriptions(token, SUBSCRIPTION_IDS);

    expect(result.map(outcomeOf)).toEqual(['NTF AUTH', 'NTF AUTH', 'NTF AUTH']);
    expect(ntf.batches.at(-1)).toMatchObject({ size: 3, blocks: [2, 1] });
    const requests = SUBSCRIPTION_IDS.map((notifierId) => ({
      messagingRouter: adapter.smp.address,
      notifierId,
      notifierPrivateKey: generateAuthKeys().privateKey,
    }));
    expect((await adapter.notifications.createSubscriptions(token, requests)).map(outcomeOf)).toEqual(
      Array(3).fill('NTF AUTH'),
    );
    expect(ntf.batches.at(-1)).toMatchObject({ size: 3, blocks: [1, 1, 1] });
  });

  test('N17 a router of version 1 gets one command in a block', async () => {
    const old = await startRouters({ smp: 0, ntfVersion: 1 });
    adapter.afterwards(() => old.stop());
    const token = await adapter.makeToken(old.ntf[0]!.address);
    await adapter.notifications.checkSubscriptions(token, SUBSCRIPTION_IDS);

    expect(old.ntf[0]!.batches.at(-1)).toMatchObject({ size: 3, blocks: [1, 1, 1], version: 1 });
  });

  test('N17 a command that fits no block fails for good, and alone', async () => {
    const { ntf } = adapter;
    const token = await adapter.makeToken(ntf.address);
    const request = (host: string) => ({
      messagingRouter: { ...adapter.smp.address, host },
      notifierId: SUBSCRIPTION_IDS[0]!,
      notifierPrivateKey: generateAuthKeys().privateKey,
    });
    const results = await adapter.notifications.createSubscriptions(token, [
      request('a'.repeat(200)),
      request('127.0.0.1'),
    ]);

    expect(results.map(outcomeOf)).toEqual(['BROKER TRANSPORT', 'NTF AUTH']);
    expect(ntf.batches.at(-1)!.size).toBe(1);
  });

  test('N17 an older messaging router makes the queue without its notifier', async () => {
    const old = await startMessagingRouter({ version: 16 });
    adapter.afterwards(() => old.stop());
    const ask = async (address: RouterAddress) => {
      const { publicKey: recipientPublicKey, privateKey: recipientPrivateKey } = generateAuthKeys();
      const notifier = {
        notifierPublicKey: generateAuthKeys().publicKey,
        recipientDhPublicKey: generateDhKeys().publicKey,
      };
      return valueOf(
        await adapter.messaging.createQueue({ address, recipientPublicKey, recipientPrivateKey, notifier }),
      );
    };

    expect((await ask(old.address)).notifier).toBeUndefined();
    expect((await ask(adapter.smp.address)).notifier?.routerDhPublicKey.length).toBe(32);
  });

  test('N17 nothing to do is nothing sent', async () => {
    const token = tokenAt(adapter.ntf.address);

    expect(await adapter.messaging.createNotifierKeys([])).toEqual([]);
    expect(await adapter.notifications.createSubscriptions(token, [])).toEqual([]);
    expect(await adapter.notifications.checkSubscriptions(token, [])).toEqual([]);
    expect(adapter.ntf.batches).toEqual([]);
  });
});

/** The adapter toward routers: what is sent over which connection, and how it is packed. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { createNotificationRouter } from '../../activities/subscription/router/http.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import { HTTPS } from '../../dev/stand-ins/subscription/https.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { RouterAdapter } from './router-adapter.ts';
import { SUBSCRIPTION_IDS, keyRequest, startRouterAdapter } from './router-adapter.ts';
import { outcomeOf, valueOf } from './router-agent.ts';

let adapter: RouterAdapter;

beforeEach(async () => {
  adapter = await startRouterAdapter();
});
afterEach(() => adapter.stop());

describe('the way there', () => {
  test('N17 a peer that does not finish the TLS handshake is given up after the connect time-out', async () => {
    // It reads, so that it notices when the other side hangs up; otherwise its end would stay open for ever.
    const silent = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const impatient = createNotificationRouter({ connectTimeoutMs: 1_000 });
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
    const old = createNotificationRouter({ newestVersion: 0 });
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
});

describe('batches', () => {
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

  test('N17 an older messaging router makes the queue without its notifier', async () => {
    const old = await startMessagingRouter({ transport: HTTPS, version: 16 });
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
});

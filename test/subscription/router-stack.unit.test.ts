/** The routers of an embedded stack. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  createMessagingRouters,
  createNotificationRouters,
} from '../../activities/subscription/router/binary/routers.ts';
import { generateAuthKeys } from '../../activities/subscription/router/signing.ts';
import { startRouters } from '../../dev/stand-ins/subscription/routers.ts';
import { eventually } from '../eventually.ts';
import { outcomeOf, valueOf } from './router-agent.ts';

test('N19 stand-ins are reached by their addresses, and keep those and what they have across a restart', async () => {
  const storeDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-routers-'));
  const messaging = createMessagingRouters();
  const notifications = createNotificationRouters();
  const before = await startRouters({ port: 0, storeDir });
  const [address] = before.messagingRouters;
  const addresses = [...before.messagingRouters, ...before.notificationRouters];
  expect(outcomeOf(await notifications.ping(before.notificationRouters[0]!))).toBe('ok');
  const { publicKey: recipientPublicKey, privateKey: recipientPrivateKey } = generateAuthKeys();
  const queue = { address: address!, recipientPublicKey, recipientPrivateKey };
  const { recipientId } = valueOf(await messaging.createQueue(queue));
  await before.stop();

  const after = await startRouters({ port: 0, storeDir });
  expect([...after.messagingRouters, ...after.notificationRouters]).toEqual(addresses);
  const ref = { address: address!, userId: 0, connId: 'c', recipientId, recipientPrivateKey };
  // Until the connection to the router of before is known to be closed, an attempt fails with an error that passes.
  await eventually('the queue to be found and deleted', async () => {
    const [deleted] = await messaging.deleteQueues([ref]);
    return outcomeOf(deleted!.result) === 'ok';
  });
  await Promise.all([messaging.close(), notifications.close(), after.stop()]);
  rmSync(storeDir, { recursive: true });
});

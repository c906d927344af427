/** The routers of an embedded stack. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  createMessagingRouters,
  createNotificationRouters,
} from '../../activities/subscription/router/routers.ts';
import { startRouters } from '../../dev/stand-ins/subscription/routers.ts';
import { eventually } from '../eventually.ts';
import { keyRequest, makeQueueRefs } from './router-adapter.ts';
import { outcomeOf } from './router-agent.ts';

test('N19 stand-ins are reached by their addresses, and keep those and what they have across a restart', async () => {
  const storeDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-routers-'));
  const messaging = createMessagingRouters();
  const notifications = createNotificationRouters();
  const before = await startRouters({ port: 0, storeDir });
  const [address] = before.messagingRouters;
  const addresses = [...before.messagingRouters, ...before.notificationRouters];
  expect(outcomeOf(await notifications.ping(before.notificationRouters[0]!))).toBe('ok');
  const [queue] = await makeQueueRefs([{ server: address!, userId: 0, connId: 'c' }]);
  await before.stop();

  const after = await startRouters({ port: 0, storeDir });
  expect([...after.messagingRouters, ...after.notificationRouters]).toEqual(addresses);
  // Until the connection to the router of before is known to be closed, an attempt fails with an error that passes.
  await eventually('the queue to be found', async () => {
    const [found] = await messaging.createNotifierKeys([keyRequest(queue!)]);
    return outcomeOf(found!.result) === 'ok';
  });
  await Promise.all([messaging.close(), notifications.close(), after.stop()]);
  rmSync(storeDir, { recursive: true });
});

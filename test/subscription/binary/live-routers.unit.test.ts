/** `npm run test:routers`, as the process that it is, against stand-ins that speak the routers' own protocol. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { routerAddressText } from '../../../api/subscription/router-address.ts';
import { keptCertificate } from '../../../dev/live-routers/push-provider.ts';
import type { Step } from '../../../dev/live-routers/steps.ts';
import { freePort } from '../../../dev/servers/ports.ts';
import type { MessagingRouterStandIn } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../../dev/stand-ins/subscription/notification-router.ts';
import { scratchFolder } from '../../scratch.ts';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };

const { dir } = scratchFolder('live');
let pushPort: number;
let smp: MessagingRouterStandIn;
let ntf: NotificationRouterStandIn;
beforeAll(async () => {
  pushPort = await freePort();
  const { certPem: pushAuthority } = await keptCertificate(dir);
  smp = await startMessagingRouter({ password: 'secret' });
  ntf = await startNotificationRouter({ pushUrl: `https://localhost:${pushPort}`, pushAuthority });
});
afterAll(async () => {
  await ntf.stop();
  await smp.stop();
});

test('N19 a subscription goes through its life on running routers, and nothing is left there', async () => {
  const messaging = routerAddressText(smp.address, 'smp').replace('@', ':secret@');
  const TEST_ROUTERS = `${messaging} ${routerAddressText(ntf.address, 'ntf')}`;
  // As `npm run test:routers`, which lets a shell read the variable. Another exit code than 0 is an error.
  const command = `${scripts['test:routers']!.split(' && ')[1]} "$@"`;
  const args = ['--push-folder', dir, '--push-port', String(pushPort), '--json'];
  const { stdout, stderr } = await promisify(execFile)('sh', ['-c', command, 'sh', ...args], {
    env: { PATH: process.env['PATH'], NODE_NO_WARNINGS: '1', TEST_ROUTERS },
  });
  const { ok, steps } = JSON.parse(stdout) as { ok: boolean; steps: Step[] };

  expect([stderr, ok]).toEqual(['', true]);
  expect(steps.map(({ step }) => step)).toEqual([
    ...[
      'connect to the messaging router',
      'connect to the notification router',
      'connect as the application',
    ],
    ...['register a device token', 'receive the verification push', 'verify the token'],
    ...['create a queue', 'subscribe to the queue', 'send a message', 'receive the notification'],
    ...['create a queue in its place', 'subscribe to the queue in its place', 'delete the first queue'],
    ...['send a message after the rotation', 'receive the notification after the rotation', 'delete'],
  ]);
  const seen = Object.fromEntries(steps.map((one) => [one.step, one.seen]));
  expect(seen['connect to the messaging router']).toMatchObject({ version: 9 });
  expect(seen['receive the verification push']).toEqual({ type: 'background', 'bytes of the code': 32 });
  expect(seen['verify the token']).toEqual({ status: 'ACTIVE' });
  expect(seen['receive the notification']).toMatchObject({ type: 'alert' });
  const messages = steps.flatMap((one) => one.seen['message id'] ?? []);
  expect(new Set(messages).size).toBe(2);
  expect([...smp.queues(), ...ntf.tokens(), ...ntf.subscriptions()]).toEqual([]);
});

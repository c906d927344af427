/** `npm run test:routers`, as the process that it is, against stand-ins that speak the routers' own protocol. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { keptCertificate } from '../../../dev/live-routers/push-provider.ts';
import type { Step } from '../../../dev/live-routers/steps.ts';
import { freePort } from '../../../dev/servers/ports.ts';
import type { MessagingRouterStandIn } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../../dev/stand-ins/subscription/notification-router.ts';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };

let folder: string;
let pushPort: number;
let smp: MessagingRouterStandIn;
let ntf: NotificationRouterStandIn;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-live-'));
  pushPort = await freePort();
  const { certPem: pushAuthority } = await keptCertificate(folder);
  smp = await startMessagingRouter({ password: 'secret' });
  ntf = await startNotificationRouter({
    ...{ pushUrl: `https://localhost:${pushPort}`, pushAuthority },
  });
});

afterEach(async () => {
  await ntf.stop();
  await smp.stop();
  rmSync(folder, { recursive: true });
});

const addressOf = (scheme: 'smp' | 'ntf', { address }: Pick<typeof smp, 'address'>, password = ''): string =>
  `${scheme}://${address.keyHash}${password}@${address.host}:${address.port}`;

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** As `npm run test:routers`, which lets a shell read the variable. */
function run(args: readonly string[], variables: Record<string, string>): Promise<Ended> {
  const all = ['--push-folder', folder, '--push-port', String(pushPort), ...args];
  const child = spawn('sh', ['-c', `${scripts['test:routers']!.split(' && ')[1]} "$@"`, 'sh', ...all], {
    env: { PATH: process.env['PATH'], NODE_NO_WARNINGS: '1', ...variables },
  });
  const ended: Ended = { code: null, stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (ended.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (ended.stderr += chunk.toString()));
  return new Promise((resolve) => child.once('close', (code) => resolve({ ...ended, code })));
}

const leftOnRouters = () => [...smp.queues(), ...ntf.tokens(), ...ntf.subscriptions()];

test('N19 a subscription goes through its life on running routers, and nothing is left there', async () => {
  const TEST_ROUTERS = `${addressOf('smp', smp, ':secret')} ${addressOf('ntf', ntf)}`;
  const { code, stdout, stderr } = await run(['--json'], { TEST_ROUTERS });
  const { ok, steps } = JSON.parse(stdout) as { ok: boolean; steps: Step[] };

  expect([code, stderr, ok]).toEqual([0, '', true]);
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
  expect(leftOnRouters()).toEqual([]);
});

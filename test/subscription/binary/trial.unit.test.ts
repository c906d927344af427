/** What `doctor` says about routers: with `--router` about one of either kind, else about all notification routers. */
import { diagnose } from '../../../cli/checks.ts';
import { UsageError } from '../../../cli/command.ts';
import { readRouter, routerChecks, routerTrial } from '../../../cli/subscription/check.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { startAnsweringRouter } from './router.ts';

async function findingOf(protocol: RouterProtocol, insteadOf: Record<string, string> = {}) {
  const router = await startAnsweringRouter(protocol, insteadOf);
  const { host, port, keyHash } = router.address;
  const address = await readRouter(`${protocol}://${keyHash}@${host}:${port}`);
  const [finding] = await diagnose([routerTrial(address)]);
  await router.stop();
  return { ...finding!, ops: router.ops };
}

test('N19 a messaging router is reached and answers, and nothing is made on it', async () => {
  const { status, detail, ops } = await findingOf('smp');

  expect(status).toBe('ok');
  expect(detail).toMatch(/answers under the fingerprint [\w-]{43}$/);
  expect(ops).toEqual(['PING']);
});

test('N19 a notification router makes a token without a device, and deletes it', async () => {
  const { status, ops } = await findingOf('ntf');

  expect([status, ...ops]).toEqual(['ok', 'PING', 'TNEW', 'TDEL']);
});

test.each<[RouterProtocol, string, string, number]>([
  ['smp', 'PING', 'connect', 1],
  ['ntf', 'TNEW', 'create', 2],
  ['ntf', 'TDEL', 'delete', 3],
])('N19 %s: what fails at %s is named, and what was made is deleted', async (protocol, op, step, asked) => {
  const { status, detail, ops } = await findingOf(protocol, { [op]: 'ERR AUTH' });

  expect(status).toBe('error');
  expect(detail).toContain(`: ${step}, ${protocol.toUpperCase()} AUTH`);
  expect(ops).toHaveLength(asked);
});

test('N19 what is no address is wrong usage, and says why', async () => {
  const wrong = readRouter('smp://secret@host').catch((error: unknown) => error);
  expect(await wrong).toBeInstanceOf(UsageError);
  expect((await wrong) as Error).toMatchObject({ message: 'the fingerprint has 32 bytes, in base64url' });
});

test('N16 N17 scenario 10: each notification router that does not work is named, and the step', async () => {
  const [working, failing] = [
    await startAnsweringRouter('ntf'),
    await startAnsweringRouter('ntf', { TNEW: 'ERR INTERNAL' }),
  ];
  const unknown = { ...working.address, keyHash: 'A'.repeat(43) };
  const findings = await diagnose([
    routerChecks([working.address]),
    routerChecks([failing.address, unknown]),
    routerChecks([working.address, unknown]),
  ]);
  await Promise.all([working.stop(), failing.stop()]);

  const name = 'notification routers';
  const connect = `127.0.0.1:${working.address.port}: connect, BROKER NETWORK, unknown CA`;
  expect(findings).toEqual([
    { name, status: 'ok', detail: `127.0.0.1:${working.address.port} can make a token and delete it` },
    {
      name,
      status: 'error',
      detail: `2 of 2 failed: 127.0.0.1:${failing.address.port}: create, NTF INTERNAL; ${connect}`,
      hint: expect.stringContaining('subscriptions status'),
    },
    { name, status: 'warn', detail: expect.stringContaining(connect), hint: expect.anything() },
  ]);
});

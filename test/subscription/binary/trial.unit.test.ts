/** `doctor --router`: what is said about one router that speaks its own protocol. */
import { diagnose } from '../../../cli/checks.ts';
import { UsageError } from '../../../cli/command.ts';
import { routerTrial } from '../../../cli/subscription/check.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { startRouters } from '../routers.ts';
import { startAnsweringRouter } from './router.ts';

async function findingOf(protocol: RouterProtocol, insteadOf: Record<string, string> = {}) {
  const router = await startAnsweringRouter(protocol, insteadOf);
  const { host, port, keyHash } = router.address;
  const [finding] = await diagnose([routerTrial(`${protocol}://${keyHash}@${host}:${port}`)]);
  await router.stop();
  return { ...finding!, ops: router.ops };
}

test('N19 a messaging router is reached and answers, and nothing is made on it', async () => {
  const { status, detail, ops } = await findingOf('smp');

  expect(status).toBe('ok');
  expect(detail).toMatch(/fingerprint [\w-]{43}, version 9 of 1 to 9, round trip \d+ ms/);
  expect(ops).toEqual(['PING', 'PING']);
});

test('N19 a notification router makes a token without a device, and deletes it', async () => {
  const { status, ops } = await findingOf('ntf');

  expect([status, ...ops]).toEqual(['ok', 'PING', 'TNEW', 'TDEL', 'PING']);
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

test('N19 what is no address is wrong usage, and says why', () => {
  expect(() => routerTrial('smp://secret@host')).toThrow(UsageError);
  expect(() => routerTrial('smp://secret@host')).toThrow('the fingerprint has 32 bytes');
});

test.each<[RouterProtocol, string]>([
  ['smp', 'version 9 of 6 to 10'],
  ['ntf', 'version 2 of 1 to 2'],
])('N19 %s: a stand-in is tried as official routers are, and keeps nothing', async (protocol, versions) => {
  const routers = await startRouters();
  const { host, port, keyHash } = (protocol === 'smp' ? routers.smp[0]! : routers.ntf[0]!).address;
  const [finding] = await diagnose([routerTrial(`${protocol}://${keyHash}@${host}:${port}`)]);
  const kept = [...routers.smp[0]!.queues(), ...routers.ntf[0]!.tokens()];
  await routers.stop();

  expect(finding!.status).toBe('ok');
  expect(finding!.detail).toContain(versions);
  expect(kept).toEqual([]);
});

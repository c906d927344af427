/** How sessions with routers begin, or do not: hosts and proxies that fall silent or break off on the way. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { createRouterSessions } from '../../../activities/subscription/router/sessions.ts';
import type { RouterResult } from '../../../activities/subscription/router/ports.ts';
import { eventually } from '../../eventually.ts';
import { startProxy } from './proxy.ts';
import { answering, startBinaryRouter } from './router.ts';

const PING = { command: { op: 'PING' } } as const;
const ONION = `${'a'.repeat(56)}.onion`;
/** Longer than any of these tests. */
const NEVER_MS = 600_000;

function outcomeOf(result: RouterResult<{ op: string }> | undefined): string {
  if (!result) return 'no answer';
  return result.ok ? result.value.op : `${result.error.source} ${result.error.code} ${result.error.detail}`;
}

test('N19 closing waits for no router that is silent, before TLS or after it', async () => {
  const accepted: unknown[] = [];
  const beforeTls = createServer((socket) => void accepted.push(socket)).listen(0, '127.0.0.1');
  await once(beforeTls, 'listening');
  const afterTls = await startBinaryRouter({ helloParts: 0 });
  const sessions = createRouterSessions('smp', { timeoutMs: NEVER_MS });
  const { port } = beforeTls.address() as AddressInfo;
  const asked = [
    sessions.ask('user', { ...afterTls.address, port }, [PING]),
    sessions.ask('user', afterTls.address, [PING]),
  ];
  await eventually(
    'both to be connected to',
    async () => accepted.length === 1 && afterTls.connected() === 1,
  );
  await sessions.close();
  const outcomes = (await Promise.all(asked)).map(([result]) => result);

  expect(outcomes).toEqual(Array(2).fill({ ok: false, error: { source: 'AGENT', code: 'INACTIVE' } }));
  await eventually('the socket to be closed', async () => afterTls.connected() === 0);
  beforeTls.close();
  await afterTls.stop();
});

test('N19 a host that is silent after TLS leaves time for the next one', async () => {
  const router = await startBinaryRouter({ onBlock: answering('PONG') });
  const { port } = router.address;
  const silent = await startBinaryRouter({ helloParts: 0, at: { host: '127.0.0.2', port } });
  const sessions = createRouterSessions('smp', { timeoutMs: 4_000 });
  const both = await sessions.ask('user', { ...router.address, host: '127.0.0.2,127.0.0.1' }, [PING]);
  const alone = await sessions.ask('user', silent.address, [PING]);
  await sessions.close();
  await Promise.all([router.stop(), silent.stop()]);

  expect([both, alone].map(([result]) => outcomeOf(result))).toEqual([
    'PONG',
    'BROKER NETWORK no hello in time',
  ]);
});

test('N19 a hello that comes in many parts is put together, without a warning', async () => {
  const warnings: string[] = [];
  const note = ({ name }: Error): void => void warnings.push(name);
  process.on('warning', note);
  const router = await startBinaryRouter({ helloParts: 64, onBlock: answering('PONG') });
  const sessions = createRouterSessions('smp');
  const [result] = await sessions.ask('user', router.address, [PING]);
  await sessions.close();
  await router.stop();
  process.off('warning', note);

  expect(outcomeOf(result)).toBe('PONG');
  expect(warnings).toEqual([]);
});

// Right behind the proxy's answer, within TLS, within the hello, and once the session is there.
test.each([0, 1, 8_000, 30_000])(
  'N19 a proxy that breaks off after %i bytes of the router is told as a broken connection',
  async (bytes) => {
    const broken: unknown[] = [];
    const note = (error: unknown): void => void broken.push(error);
    process.on('uncaughtException', note);
    const router = await startBinaryRouter({ onBlock: answering('PONG') });
    const proxy = await startProxy(router.address.port, 0, bytes);
    const socksProxy = { host: '127.0.0.1', port: proxy.port };
    const sessions = createRouterSessions('smp', { socksProxy, timeoutMs: 5_000, commandTimeoutMs: 5_000 });
    const outcomes: string[] = [];
    for (let time = 0; time < 2; time += 1) {
      const [result] = await sessions.ask('user', { ...router.address, host: ONION }, [PING]);
      outcomes.push(outcomeOf(result));
    }
    await sessions.close();
    proxy.stop();
    await router.stop();
    process.off('uncaughtException', note);

    expect(broken).toEqual([]);
    for (const outcome of outcomes) expect(outcome).toMatch(/^BROKER NETWORK /);
  },
);

test('N19 a proxy that falls silent is given up when the time is up', async () => {
  const silent = createServer(() => undefined).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const socksProxy = { host: '127.0.0.1', port: (silent.address() as AddressInfo).port };
  const sessions = createRouterSessions('smp', { socksProxy, timeoutMs: 200 });
  const keyHash = 'A'.repeat(43);
  const [result] = await sessions.ask('user', { host: ONION, port: 5_223, keyHash }, [PING]);
  await sessions.close();
  silent.close();

  expect(outcomeOf(result)).toBe('BROKER NETWORK no connection in time');
});

test('N19 a name that leads nowhere is an error of the host', async () => {
  const sessions = createRouterSessions('smp');
  const address = { host: 'router.invalid', port: 1, keyHash: 'A'.repeat(43) };
  const [result] = await sessions.ask('user', address, [PING]);
  await sessions.close();

  expect(outcomeOf(result)).toMatch(/^BROKER (HOST|NETWORK) /);
});

/** How sessions with routers begin, or do not: hosts and ways that fall silent or break off on the way. */
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { createRouterSessions } from '../../../activities/subscription/router/sessions.ts';
import type { RouterResult } from '../../../activities/subscription/router/ports.ts';
import { eventually } from '../../eventually.ts';
import { answering, startBinaryRouter } from './router.ts';

const PING = { command: { op: 'PING' } } as const;
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

// Within TLS, within the hello, and once the session is there.
test.each([0, 1, 8_000, 30_000])(
  'N19 a way that breaks off after %i bytes of the router is told as a broken connection',
  async (bytes) => {
    const broken: unknown[] = [];
    const note = (error: unknown): void => void broken.push(error);
    process.on('uncaughtException', note);
    const router = await startBinaryRouter({ onBlock: answering('PONG') });
    const relay = await startBreakingRelay(router.address.port, bytes);
    const sessions = createRouterSessions('smp', { timeoutMs: 5_000, commandTimeoutMs: 5_000 });
    const outcomes: string[] = [];
    for (let time = 0; time < 2; time += 1) {
      const [result] = await sessions.ask('user', { ...router.address, port: relay.port }, [PING]);
      outcomes.push(outcomeOf(result));
    }
    await sessions.close();
    relay.stop();
    await router.stop();
    process.off('uncaughtException', note);

    expect(broken).toEqual([]);
    for (const outcome of outcomes) expect(outcome).toMatch(/^BROKER NETWORK /);
  },
);

/** Leads to a port of the loopback, and resets each connection after so many bytes from there. */
async function startBreakingRelay(port: number, resetAfterBytes: number) {
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client);
    client.on('error', () => client.destroy());
    const router = connect(port, '127.0.0.1');
    let bytes = 0;
    router.on('error', () => client.destroy());
    client.once('close', () => router.destroy());
    router.on('data', (chunk) => {
      bytes += chunk.length;
      if (bytes > resetAfterBytes) client.resetAndDestroy();
    });
    if (resetAfterBytes === 0) client.resetAndDestroy();
    else router.pipe(client).pipe(router);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    stop() {
      server.close();
      for (const client of clients) client.destroy();
    },
  };
}

test('N19 a name that leads nowhere is an error of the host', async () => {
  const sessions = createRouterSessions('smp');
  const address = { host: 'router.invalid', port: 1, keyHash: 'A'.repeat(43) };
  const [result] = await sessions.ask('user', address, [PING]);
  await sessions.close();

  expect(outcomeOf(result)).toMatch(/^BROKER (HOST|NETWORK) /);
});

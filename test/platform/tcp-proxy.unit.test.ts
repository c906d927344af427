/** The proxy that spoils connections for other tests must spoil them as it says, and nothing else. */
import { once } from 'node:events';
import type { AddressInfo, Server, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import type { TcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { eventually } from '../eventually.ts';

/** Answers every chunk with itself, and keeps what it was sent. */
let server: Server;
let received: string;
const accepted = new Set<Socket>();
let proxy: TcpProxy;
beforeEach(async () => {
  received = '';
  server = createServer((socket) => {
    accepted.add(socket);
    socket.once('close', () => accepted.delete(socket));
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      received += chunk.toString();
      socket.write(chunk);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  proxy = await startTcpProxy({ host: '127.0.0.1', port: (server.address() as AddressInfo).port });
});
afterEach(async () => {
  await proxy.stop();
  for (const socket of accepted) socket.destroy();
  server.close();
});

interface Caller {
  socket: Socket;
  /** All that it was answered. */
  heard(): string;
  says(text: string): void;
  /** Undefined while it is open; then why it was closed. */
  closedBy(): string | undefined;
}

async function caller(): Promise<Caller> {
  const socket = connect(proxy.port, proxy.host);
  let heard = '';
  let error: string | undefined;
  let isClosed = false;
  socket.on('data', (chunk) => (heard += chunk.toString()));
  socket.on('error', (problem: NodeJS.ErrnoException) => (error = problem.code));
  socket.on('close', () => (isClosed = true));
  await once(socket, 'connect');
  return {
    socket,
    heard: () => heard,
    says: (text) => void socket.write(text),
    closedBy: () => (isClosed ? (error ?? 'end') : undefined),
  };
}

const hears = (one: Caller, text: string) =>
  eventually(`"${text.slice(0, 20)}"`, async () => one.heard() === text);

test('I36 half-open: requests or answers are swallowed, connecting works, and nothing heals what lost bytes', async () => {
  const asks = await caller();
  asks.says('a');
  await hears(asks, 'a');
  await proxy.set({ kind: 'half-open', silent: 'answers' });
  asks.says('b');
  // Executed, and never answered.
  await eventually('the request to arrive', async () => received === 'ab');
  const second = await caller();
  await proxy.set({ kind: 'half-open', silent: 'requests' });
  second.says('c');
  await proxy.set({ kind: 'open' });
  asks.says('d');
  const healthy = await caller();
  healthy.says('e');
  await hears(healthy, 'e');
  expect(received).toBe('abe');
  expect([asks.heard(), second.heard()]).toEqual(['a', '']);
  expect([asks.closedBy(), second.closedBy()]).toEqual([undefined, undefined]);
  // A client that gives up gets its socket back, and the server its own.
  for (const one of [asks, second]) one.socket.destroy();
  await eventually('one connection to be left', async () => proxy.connections === 1 && accepted.size === 1);
});

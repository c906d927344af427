/** The proxy that spoils connections in fault runs must spoil them as it says, and nothing else. */
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { eventually } from '../eventually.ts';

test('I36 half-open: requests or answers are swallowed, connecting works, and nothing heals what lost bytes', async () => {
  let received = '';
  const accepted = new Set<Socket>();
  const server = createServer((socket) => {
    accepted.add(socket);
    socket.once('close', () => accepted.delete(socket)).on('error', () => undefined);
    socket.on('data', (chunk) => {
      received += chunk.toString();
      socket.write(chunk);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy = await startTcpProxy({ host: '127.0.0.1', port: (server.address() as AddressInfo).port });
  async function connected() {
    const socket = connect(proxy.port, proxy.host).on('error', () => undefined);
    await once(socket, 'connect');
    const client = { socket, heard: '' };
    socket.on('data', (chunk) => (client.heard += chunk.toString()));
    return client;
  }

  const asks = await connected();
  asks.socket.write('a');
  await eventually('an answer', async () => asks.heard === 'a');
  await proxy.set({ kind: 'half-open', silent: 'answers' });
  asks.socket.write('b');
  // Executed, and never answered.
  await eventually('the request to arrive', async () => received === 'ab');
  const second = await connected();
  await proxy.set({ kind: 'half-open', silent: 'requests' });
  second.socket.write('c');
  await proxy.set({ kind: 'open' });
  asks.socket.write('d');
  const healthy = await connected();
  healthy.socket.write('e');
  await eventually('a healthy answer', async () => healthy.heard === 'e');
  expect([received, asks.heard, second.heard]).toEqual(['abe', 'a', '']);
  expect([asks.socket.closed, second.socket.closed]).toEqual([false, false]);
  // A client that gives up gets its socket back, and the server its own.
  for (const { socket } of [asks, second]) socket.destroy();
  await eventually('one connection to be left', async () => proxy.connections === 1 && accepted.size === 1);

  await proxy.stop();
  for (const socket of accepted) socket.destroy();
  server.close();
});

/** The proxy that spoils connections in fault runs must spoil them as it says, and nothing else. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { LOOPBACK, listen } from '../../dev/servers/ports.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { eventually } from '../eventually.ts';

test('I36 half-open: requests or answers are swallowed, connecting works, and nothing heals what lost bytes', async () => {
  let received = '';
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket.on('error', () => undefined));
    socket.on('data', (chunk) => {
      received += chunk.toString();
      socket.write(chunk);
    });
  });
  const proxy = await startTcpProxy({ host: LOOPBACK, port: await listen(server) });
  async function connected() {
    const socket = connect(proxy.port, proxy.host).on('error', () => undefined);
    await once(socket, 'connect');
    const client = { socket, heard: '' };
    socket.on('data', (chunk) => (client.heard += chunk.toString()));
    return client;
  }

  const asks = await connected();
  await proxy.set({ kind: 'half-open', silent: 'answers' });
  asks.socket.write('a');
  // Executed, and never answered.
  await eventually('the request to arrive', async () => received === 'a');
  const second = await connected();
  await proxy.set({ kind: 'half-open', silent: 'requests' });
  second.socket.write('b');
  await proxy.set({ kind: 'open' });
  asks.socket.write('c');
  const healthy = await connected();
  healthy.socket.write('d');
  await eventually('a healthy answer', async () => healthy.heard === 'd');
  expect([received, asks.heard, second.heard]).toEqual(['ad', '', '']);

  await proxy.stop();
  for (const socket of accepted) socket.destroy();
  server.close();
});

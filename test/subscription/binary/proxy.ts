/** A SOCKS5 proxy that leads to one port of the loopback, whatever it is asked for. */
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';

/**
 * @param reply what it answers to a request; 0 leads there.
 * @param resetAfterBytes of the router, the client is cut off.
 */
export async function startProxy(port: number, reply = 0, resetAfterBytes = Number.POSITIVE_INFINITY) {
  const asked: string[] = [];
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client);
    client.on('error', () => client.destroy());
    client.once('data', () => {
      client.write(Buffer.from([5, 0]));
      client.once('data', (request) => {
        asked.push(request.toString('ascii', 5, 5 + request[4]!));
        client.write(Buffer.from([5, reply, 0, 1, 127, 0, 0, 1, 0, 0]));
        if (reply !== 0) return;
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
      });
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    asked,
    port: (server.address() as AddressInfo).port,
    stop() {
      server.close();
      for (const client of clients) client.destroy();
    },
  };
}

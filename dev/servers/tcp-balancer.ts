/** One address for several servers, as a load balancer is: each connection goes to the next one that takes it. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { LOOPBACK } from './ports.ts';

export interface TcpBalancer {
  /** `127.0.0.1:<port>`. */
  address: string;
  port: number;
  stop(): Promise<void>;
}

/** @param ports loopback ports of the servers. @param port where it listens. @throws Error when that is taken. */
export async function startTcpBalancer(ports: readonly number[], port: number): Promise<TcpBalancer> {
  let turn = 0;
  const open = new Set<Socket>();
  const keep = (socket: Socket): void => {
    open.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => open.delete(socket));
  };

  const pass = (client: Socket, left: readonly number[]): void => {
    const [next, ...others] = left;
    if (next === undefined) return void client.resetAndDestroy();
    const server = connect(next, LOOPBACK);
    server.once('error', () => pass(client, others));
    server.once('connect', () => {
      server.removeAllListeners('error');
      keep(server);
      client.pipe(server).pipe(client);
      // A server that dies closes its connection: the client connects again and reaches another server.
      server.once('close', () => client.destroy());
      client.once('close', () => server.destroy());
    });
  };
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (client) => {
    keep(client);
    const first = turn++ % ports.length;
    pass(client, [...ports.slice(first), ...ports.slice(0, first)]);
  });
  server.listen(port, LOOPBACK);
  await once(server, 'listening');
  const listening = (server.address() as AddressInfo).port;
  return {
    address: `${LOOPBACK}:${listening}`,
    port: listening,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of open) socket.destroy();
      await closed;
    },
  };
}

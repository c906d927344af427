/**
 * A small pooler of transactions, for machines without PgBouncer. As PgBouncer 1.18 in transaction mode does it: a client has
 * a connection to the server from a message until the server says that no transaction is open, the connections take
 * turns, and parameters of a start-up that it does not keep are refused.
 */
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { LOOPBACK } from '../dev/servers/ports.ts';

const SSL_REQUEST = 80_877_103;
const PROTOCOL_3 = 196_608;
const KEPT_PARAMETERS = new Set(
  'user database application_name client_encoding datestyle timezone standard_conforming_strings'.split(' '),
);

/** A pooler that runs. */
export interface Pooler {
  /** What it is, for the log of a run. */
  what: string;
  port: number;
  stop(): Promise<void>;
}

interface Message {
  type: string;
  /** With type and length, as it was sent. */
  bytes: Buffer;
}

interface ServerConnection {
  socket: Socket;
  client?: Client;
}

interface Client {
  socket: Socket;
  pool: Pool;
  server?: ServerConnection;
  waiting: Message[];
  /** Of what it sent, how much the server has to say ReadyForQuery to. */
  unanswered: number;
}

interface Pool {
  idle: ServerConnection[];
  opened: number;
  queue: Client[];
}

export async function startPoolerStandIn(serverPort: number, size: number): Promise<Pooler> {
  const pools = new Map<string, Pool & { startUp: Buffer }>();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    keep(socket);
    readStartUp(socket, accept);
  });
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  return {
    what: 'a stand-in for PgBouncer, which is not installed',
    port: (server.address() as AddressInfo).port,
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };

  function keep(socket: Socket): void {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket));
  }

  function accept(socket: Socket, parameters: Map<string, string>): ((message: Message) => void) | undefined {
    const refused = [...parameters.keys()].find((name) => !KEPT_PARAMETERS.has(name.toLowerCase()));
    if (refused !== undefined) {
      socket.end(errorOf('08P01', `unsupported startup parameter: ${refused}`));
      return undefined;
    }
    const [user = '', database = ''] = [parameters.get('user'), parameters.get('database')];
    const key = `${user}/${database}`;
    let pool = pools.get(key);
    if (!pool) {
      pool = { idle: [], opened: 0, queue: [], startUp: startUpOf({ user, database }) };
      pools.set(key, pool);
    }
    const client: Client = { socket, pool, waiting: [], unanswered: 0 };
    socket.on('close', () => leave(client));
    socket.write(
      Buffer.concat([
        messageOf('R', int32(0)),
        messageOf('S', text('server_version', '18.0')),
        messageOf('S', text('standard_conforming_strings', 'on')),
        messageOf('K', Buffer.concat([int32(1), int32(1)])),
        messageOf('Z', Buffer.from('I')),
      ]),
    );
    return (message) => {
      if (message.type === 'X') return void socket.end();
      client.waiting.push(message);
      if (client.server) return send(client);
      if (client.waiting.length === 1) pool.queue.push(client);
      serve(pool);
    };
  }

  function serve(pool: Pool): void {
    while (pool.queue.length > 0) {
      // The one that has been idle for longest: each transaction gets another.
      const connection = pool.idle.shift();
      if (!connection) {
        if (pool.opened < size) void open(pool as Pool & { startUp: Buffer });
        return;
      }
      const client = pool.queue.shift()!;
      [client.server, connection.client] = [connection, client];
      send(client);
    }
  }

  function send(client: Client): void {
    for (const { type, bytes } of client.waiting.splice(0)) {
      // Query, Sync, FunctionCall.
      if ('QSF'.includes(type)) client.unanswered += 1;
      client.server!.socket.write(bytes);
    }
  }

  async function open(pool: Pool & { startUp: Buffer }): Promise<void> {
    pool.opened += 1;
    const socket = connect(serverPort, LOOPBACK);
    keep(socket);
    const connection: ServerConnection = { socket };
    let isReady = false;
    socket.on('close', () => {
      pool.opened -= 1;
      pool.idle = pool.idle.filter((one) => one !== connection);
      const client = connection.client ?? (isReady ? undefined : pool.queue.shift());
      client?.socket.end(errorOf('08006', 'server conn crashed?'));
    });
    onMessages(socket, ({ type, bytes }) => {
      const { client } = connection;
      const isIdle = type === 'Z' && bytes.toString('latin1', 5) === 'I';
      if (!isReady) {
        if (type === 'E') return void socket.destroy();
        if (!isIdle) return;
        isReady = true;
        pool.idle.push(connection);
        return serve(pool);
      }
      // What a server says to nobody, such as a notification, nobody hears.
      if (!client) return;
      client.socket.write(bytes);
      if (type === 'Z') client.unanswered -= 1;
      if (!isIdle || client.unanswered > 0) return;
      delete client.server;
      delete connection.client;
      pool.idle.push(connection);
      serve(pool);
    });
    socket.write(pool.startUp);
  }

  /** A connection in the middle of a transaction is of no use to others. */
  function leave(client: Client): void {
    client.pool.queue = client.pool.queue.filter((one) => one !== client);
    if (client.server) {
      delete client.server.client;
      client.server.socket.destroy();
    }
  }
}

function readStartUp(
  socket: Socket,
  accept: (socket: Socket, parameters: Map<string, string>) => ((message: Message) => void) | undefined,
): void {
  let buffered = Buffer.alloc(0);
  socket.on('data', function read(chunk: Buffer) {
    buffered = Buffer.concat([buffered, chunk]);
    if (buffered.length < 8 || buffered.length < buffered.readInt32BE(0)) return;
    const length = buffered.readInt32BE(0);
    const code = buffered.readInt32BE(4);
    const body = buffered.toString('utf8', 8, length);
    buffered = buffered.subarray(length);
    if (code === SSL_REQUEST) return void socket.write('N');
    socket.off('data', read);
    if (code !== PROTOCOL_3) return void socket.destroy();
    const parts = body.split('\0');
    const parameters = new Map<string, string>();
    for (let at = 0; parts[at]; at += 2) parameters.set(parts[at]!, parts[at + 1]!);
    const take = accept(socket, parameters);
    if (take) onMessages(socket, take, buffered);
  });
}

function onMessages(socket: Socket, take: (message: Message) => void, first: Buffer = Buffer.alloc(0)): void {
  let buffered = first;
  const read = (chunk: Buffer): void => {
    buffered = buffered.length === 0 ? chunk : Buffer.concat([buffered, chunk]);
    while (buffered.length >= 5 && buffered.length > buffered.readInt32BE(1)) {
      const end = buffered.readInt32BE(1) + 1;
      take({ type: String.fromCharCode(buffered[0]!), bytes: buffered.subarray(0, end) });
      buffered = buffered.subarray(end);
    }
  };
  socket.on('data', read);
}

const int32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const text = (...parts: string[]): Buffer => Buffer.from(parts.map((part) => `${part}\0`).join(''));
const messageOf = (type: string, body: Buffer): Buffer =>
  Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
const errorOf = (code: string, message: string): Buffer =>
  messageOf('E', Buffer.concat([text('SFATAL', `C${code}`, `M${message}`), Buffer.from('\0')]));

function startUpOf(parameters: Record<string, string>): Buffer {
  const body = Buffer.concat([
    int32(PROTOCOL_3),
    text(...Object.entries(parameters).flat()),
    Buffer.from('\0'),
  ]);
  return Buffer.concat([int32(body.length + 4), body]);
}

/**
 * Connections to servers that answer what a test wants: how the service stays connected to Redis, and what becomes of an operation when
 * a program closes the operator client while Temporal is away.
 */
import http2 from 'node:http2';
import type { Socket } from 'node:net';
import { createServer } from 'node:net';
import { connectOperator } from '../../client/connect.ts';
import { loadConfig } from '../../config/load.ts';
import type { RedisAddress, RedisPlace } from '../../config/variables.ts';
import { LOOPBACK, listen } from '../../dev/servers/ports.ts';
import type { ProcessContext, RenewablePart } from '../../workers/context.ts';
import { OpenParts } from '../../workers/context.ts';
import { createLogger } from '../../workers/logger.ts';
import { connectRedis } from '../../workers/redis.ts';
import { eventually } from '../eventually.ts';

const TIMEOUT_MS = 300;
const NAME = 'notifications';
const log = createLogger('silent');

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const text = (value: string) => `$${value.length}\r\n${value}\r\n`;
const texts = (...values: string[]) => `*${values.length}\r\n${values.map(text).join('')}`;
const infoOf = (role: string, loading: 0 | 1) =>
  text(`redis_version:7.2.0\r\nrole:${role}\r\ncluster_enabled:0\r\nloading:${loading}`);

/** What clients begin with. */
const GREETINGS: Record<string, string> = {
  HELLO: '-NOPROTO unsupported protocol version\r\n',
  CLIENT: '+OK\r\n',
  PING: '+PONG\r\n',
  QUIT: '+OK\r\n',
  INFO: infoOf('master', 0),
  SUBSCRIBE: `*3\r\n${text('subscribe')}${text('+switch-master')}:1\r\n`,
};

/** @param answer to a command; undefined: what clients begin with is answered, and nothing else. */
async function startServer(answer: (command: string, socket: Socket) => string | undefined) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    let rest = '';
    socket.on('data', (chunk) => {
      rest += chunk.toString('latin1');
      for (;;) {
        const lines = rest.split('\r\n');
        const end = 2 * Number(lines[0]!.slice(1)) + 1;
        if (lines.length <= end) return;
        rest = lines.slice(end).join('\r\n');
        const command = lines[2]!.toUpperCase();
        socket.write(answer(command, socket) ?? GREETINGS[command] ?? '');
      }
    });
  });
  const port = await listen(server);
  const stop = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  ends.push(stop);
  return { address: { host: LOOPBACK, port }, stop };
}

const startMaster = (name: string) => startServer((command) => (command === 'GET' ? text(name) : undefined));

async function startSentinel(masterOf: () => RedisAddress | undefined) {
  const listeners = new Set<Socket>();
  const { address } = await startServer((command, socket) => {
    if (command === 'SUBSCRIBE') listeners.add(socket);
    if (command !== 'SENTINEL') return undefined;
    const master = masterOf();
    return master ? texts(master.host, String(master.port)) : '';
  });
  const announcement = texts('message', '+switch-master', `${NAME} 10.0.0.1 1 10.0.0.2 2`);
  return {
    address,
    isListenedTo: async () => listeners.size > 0,
    announce: () => listeners.forEach((socket) => socket.write(announcement)),
  };
}

async function connect(place: RedisPlace) {
  const config = loadConfig({ NOTIFICATION_REDIS_OPERATION_TIMEOUT: `${TIMEOUT_MS}ms` });
  const open = new OpenParts(log);
  const renewable: RenewablePart[] = [];
  const context: Partial<ProcessContext> = { config, log, open, renewable };
  ends.push(() => open.closeAll(1_000));
  const { redis } = await connectRedis({ ...context, endpoints: { redis: place } } as ProcessContext);
  return { redis, renew: async () => renewable[0]!.renew(config) };
}

test('I91 a switch that is announced while a sentinel that is gone is asked for the master is followed', async () => {
  const [first, second] = [await startMaster('first'), await startMaster('second')];
  let [master, isGone, asked] = [first.address, false, 0];
  const gone = await startSentinel(() => {
    asked += 1;
    return isGone ? undefined : master;
  });
  const other = await startSentinel(() => master);
  const { redis } = await connect({ sentinels: [gone.address, other.address], master: NAME });
  expect(await redis.get('name')).toBe('first');
  await eventually('a listener', other.isListenedTo);

  [isGone, asked] = [true, 0];
  first.stop();
  await eventually('the question', async () => asked > 0);
  master = second.address;
  other.announce();
  await eventually('the new master', async () => (await redis.get('name')) === 'second', 10_000);
});

test('I24 while the address leads to a server that takes no writes, and then loads, its answers alone refuse commands', async () => {
  let [isLoading, looks] = [false, 0];
  const server = await startServer((command) => {
    if (command === 'SET') return `-${isLoading ? 'LOADING' : 'READONLY'} it takes no writes\r\n`;
    if (command !== 'INFO') return undefined;
    looks += 1;
    return infoOf('slave', isLoading ? 1 : 0);
  });
  const { redis } = await connect(server.address);
  const refusals = new Set<string>();
  const untilLookedTwice = async () => {
    const before = looks;
    await eventually('two more looks at where the address leads', async () => {
      await redis.set('key', '').catch(({ message }: Error) => refusals.add(message.split(' ')[0]!));
      return looks >= before + 2;
    });
  };
  await untilLookedTwice();
  isLoading = true;
  await untilLookedTwice();
  expect([...refusals]).toEqual(['READONLY', 'LOADING']);
});

test('I60 the renewal of a password fails in time while Redis takes connections and says nothing', async () => {
  let isSilent = false;
  const server = await startServer(() => (isSilent ? '' : undefined));
  const { renew } = await connect(server.address);
  isSilent = true;
  await expect(renew()).rejects.toThrow();
});

/** Codes of gRPC. */
const [UNIMPLEMENTED, UNAVAILABLE] = [12, 14];

test('an operation that is retried while Temporal is away fails when the client is closed, and ends no process', async () => {
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  const server = http2.createServer();
  server.on('stream', (stream, { ':path': call = '' }) => {
    const code = call.endsWith('/GetSystemInfo') ? UNIMPLEMENTED : UNAVAILABLE;
    stream.respond({ 'content-type': 'application/grpc', 'grpc-status': code }, { endStream: true });
    if (code === UNAVAILABLE) answer();
  });
  const port = await listen(server);
  const { resources, close } = connectOperator({
    postgresDsn: 'postgres://nobody@127.0.0.1:1/none',
    redis: { host: LOOPBACK, port: 1 },
    temporal: { address: `${LOOPBACK}:${port}` },
  });
  const described = resources.temporal.workflow.getHandle('any').describe();
  const outcome = expect(described).rejects.toMatchObject({ cause: { code: UNAVAILABLE } });
  await answered;
  // Answers come in order: when this one is there, the other waits for its retry.
  await expect(resources.temporal.workflowService.getSystemInfo({})).rejects.toThrow('UNIMPLEMENTED');
  await close();
  await outcome;
  server.close();
});

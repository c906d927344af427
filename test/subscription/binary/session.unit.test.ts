/** Sessions in the routers' own protocol: how they begin, or do not, what they ask, hold, and do not put up with. */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { duplexPair } from 'node:stream';
import type { Transmission } from '../../../activities/subscription/router/blocks.ts';
import {
  longString,
  padBlock,
  shortString,
  word16,
  PROTOCOLS,
} from '../../../activities/subscription/router/blocks.ts';
import type { SessionCommand, SessionOptions } from '../../../activities/subscription/router/sessions.ts';
import { beginSession, createRouterSessions } from '../../../activities/subscription/router/sessions.ts';
import type { RouterAddress, RouterResult } from '../../../activities/subscription/router/ports.ts';
import { generateAuthKeys } from '../../../activities/subscription/router/keys.ts';
import { listen } from '../../../dev/servers/ports.ts';
import { eventually } from '../../eventually.ts';
import type { BinaryRouterOptions, Peer } from './router.ts';
import { answering, startBinaryRouter } from './router.ts';

const NOTHING = Buffer.alloc(0);
const PING: SessionCommand = { command: { op: 'PING' } };
const key = generateAuthKeys().privateKey;
const ndel = (): SessionCommand => ({ entityId: randomBytes(24), command: { op: 'NDEL' }, key });
const ascii = (text: string): Buffer => Buffer.from(text, 'latin1');

/** Asks a router of the test, and stops both. */
async function asking(
  router: BinaryRouterOptions,
  commands: readonly SessionCommand[],
  { address: changed, ...options }: Partial<SessionOptions> & { address?: Partial<RouterAddress> } = {},
): Promise<string[]> {
  const server = await startBinaryRouter(router);
  const sessions = createRouterSessions(router.protocol ?? 'smp', options);
  try {
    const results = await sessions.ask('user', { ...server.address, ...changed }, commands);
    return results.map(outcomeOf);
  } finally {
    await sessions.close();
    await server.stop();
  }
}

function outcomeOf(result: RouterResult<{ op: string }>): string {
  if (result.ok) return result.value.op;
  const { source, code, detail } = result.error;
  return [source, code, ...(detail === undefined ? [] : [detail])].join(' ');
}

test.each([
  ['smp', 9],
  ['smp', 6],
  ['smp', 4],
  ['ntf', 2],
  ['ntf', 1],
] as const)('N19 150 commands to %s %d are answered each by itself', async (protocol, version) => {
  const sizes: number[] = [];
  const outcomes = await asking(
    {
      protocol,
      versions: [1, version],
      // Half of them, in the opposite order.
      onBlock(peer, transmissions) {
        sizes.push(transmissions.length);
        const answers = transmissions.map((one, index) => ({
          ...one,
          content: ascii(index % 2 === 0 ? 'OK' : 'ERR AUTH'),
        }));
        for (const answer of answers.reverse()) peer.answer(answer);
      },
    },
    Array.from({ length: 150 }, ndel),
  );

  expect(sizes.reduce((sum, size) => sum + size)).toBe(150);
  expect(outcomes.filter((outcome) => outcome === 'OK').length).toBeGreaterThanOrEqual(75);
  expect(new Set(outcomes)).toEqual(
    new Set(version === 1 ? ['OK'] : ['OK', `${protocol.toUpperCase()} AUTH`]),
  );
});

test('N19 a thousand commands wait for room, and all are answered', async () => {
  const outcomes = await asking({ onBlock: answering('OK') }, Array.from({ length: 1_000 }, ndel));

  expect(new Set(outcomes)).toEqual(new Set(['OK']));
});

test('N19 a router that does not know the name of the protocol is spoken to in an older version', async () => {
  let version = 0;
  const outcomes = await asking(
    {
      ...{ hasAlpn: false, versions: [4, 9] },
      onSession: ({ binding }) => (version = binding.version),
      onBlock: answering('PONG'),
    },
    [PING],
  );

  expect([version, ...outcomes]).toEqual([6, 'PONG']);
});

describe('what cannot be agreed on', () => {
  test('N19 a hello of another TLS session is refused', async () => {
    const hello = () => Buffer.concat([word16(6), word16(9), shortString(randomBytes(32))]);

    expect(await asking({ hello }, [PING])).toEqual(['BROKER RESPONSE the hello is of another TLS session']);
  });

  test('N19 onion hosts are not tried', async () => {
    const host = `${'a'.repeat(56)}.onion`;

    expect(await asking({}, [PING], { address: { host } })).toEqual([
      'BROKER HOST all hosts are onion hosts',
    ]);
  });
});

describe('hostile routers', () => {
  const corrupt = (write: (peer: Peer, first: Transmission) => void) =>
    asking({ onBlock: (peer, [first]) => write(peer, first!) }, [ndel(), ndel()]);
  const stranger = { correlationId: randomBytes(24), entityId: NOTHING, content: ascii('OK') };
  const unasked = { ...stranger, correlationId: NOTHING };

  test.each<[string, (peer: Peer, first: Transmission) => void, string]>([
    [
      'a length',
      (peer) => peer.write(Buffer.alloc(16_384, 0xff)),
      'a block says that it is longer than a block',
    ],
    ['padding', (peer) => peer.write(Buffer.alloc(16_384)), 'a block is not padded as blocks are'],
    ['no transmission', (peer) => peer.say(Buffer.from([0])), 'a block has no transmission'],
    ['half a transmission', (peer) => peer.say(Buffer.from([1, 0, 9, 1])), 'a transmission ends too early'],
    ['an answer to no command', (peer) => peer.answer(stranger), 'an answer is to no command'],
    ['an answer without a question', (peer) => peer.answer(unasked), 'an answer has no question'],
    [
      'an unknown word',
      (peer) => peer.answer({ ...unasked, content: ascii('HELLO') }),
      'an answer begins with no word of the protocol',
    ],
    [
      'a flood',
      (peer) => {
        for (let block = 0; block < 5; block += 1) {
          peer.answer(...Array.from({ length: 250 }, () => ({ ...unasked, content: ascii('END') })));
        }
      },
      'more is told than anybody asked for',
    ],
    [
      'an answer about something else',
      (peer, first) => peer.answer({ ...first, entityId: randomBytes(24), content: ascii('OK') }),
      'an answer is about something else than the question',
    ],
    [
      'an error that names no command',
      (peer) => peer.answer({ ...unasked, content: ascii('ERR BLOCK') }),
      'SMP BLOCK',
    ],
  ])('N19 %s ends the session', async (_, write, why) => {
    expect(await corrupt(write)).toEqual(
      Array(2).fill(why.startsWith('SMP') ? why : `BROKER RESPONSE ${why}`),
    );
  });

  test('N19 a connection that is closed is told as that, and answers that came stay', async () => {
    const outcomes = await asking(
      {
        onBlock(peer, [first]) {
          peer.answer({ ...first!, content: ascii('OK') });
          peer.end();
        },
      },
      [ndel(), ndel()],
    );

    expect(outcomes).toEqual(['OK', 'BROKER NETWORK the router has closed the connection']);
  });
});

test('N19 what is not answered in time is told, and the session ends if nothing came at all', async () => {
  const server = await startBinaryRouter();
  const sessions = createRouterSessions('smp', { commandTimeoutMs: 100 });
  const [first] = await sessions.ask('user', server.address, [PING]);
  await sessions.ask('user', server.address, [PING]);
  await sessions.close();
  await server.stop();

  expect(outcomeOf(first!)).toBe('BROKER TIMEOUT no answer within 100 ms');
  expect(server.sessions()).toBe(2);
});

test('N19 a late answer is not an answer to no command', async () => {
  const late: (() => void)[] = [];
  const server = await startBinaryRouter({
    onBlock(peer, transmissions) {
      for (const one of transmissions) {
        // Another command is answered meanwhile, so the session is alive.
        const answer = () => peer.answer({ ...one, content: ascii('PONG') });
        if (late.length === 0) late.push(answer);
        else answer();
      }
    },
  });
  const sessions = createRouterSessions('smp', { commandTimeoutMs: 1_500 });
  const [[missed], [answered]] = await Promise.all([
    sessions.ask('user', server.address, [PING]),
    sessions.ask('user', server.address, [PING]),
  ]);
  late[0]!();
  const [after] = await sessions.ask('user', server.address, [PING]);
  await sessions.close();
  await server.stop();

  expect([missed, answered, after].map((one) => outcomeOf(one!))).toEqual([
    'BROKER TIMEOUT no answer within 1500 ms',
    'PONG',
    'PONG',
  ]);
  expect(server.sessions()).toBe(1);
});

test('N19 each user has its own session, which is held, and opened again after it broke', async () => {
  const server = await startBinaryRouter({ onBlock: answering('PONG') });
  const sessions = createRouterSessions('smp');
  const ask = async (user: string) => outcomeOf((await sessions.ask(user, server.address, [PING]))[0]!);
  const outcomes = [await ask('one'), await ask('two'), await ask('one')];
  const held = server.sessions();
  server.dropAll();
  await eventually('a new session', async () => (await ask('one')) === 'PONG');
  const opened = server.sessions();
  await sessions.close();
  const closed = await ask('one');
  await server.stop();

  expect(outcomes).toEqual(['PONG', 'PONG', 'PONG']);
  expect([held, opened, closed]).toEqual([2, 3, 'AGENT INACTIVE']);
});

test('N19 a session that could not be opened is forgotten among many others, and harms no other session', async () => {
  const silent = createServer((socket) => void socket.on('error', () => undefined));
  const address = { host: '127.0.0.1', port: await listen(silent), keyHash: '' } as const;
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  const sessions = createRouterSessions('smp', { timeoutMs: 1_000 });
  const first = sessions.ask('first', address, [PING]);
  const others = Array.from({ length: 300 }, (_, user) =>
    sessions.ask(`user ${user}`, { ...address, port: 1 }, [PING]),
  );
  await Promise.all(others);

  expect(await first).toMatchObject([{ ok: false, error: { code: 'NETWORK' } }]);
  await sessions.close();
  silent.close();
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
});

test('N19 a router that says nothing is pinged, and left when it misses three', async () => {
  let pings = 0;
  const server = await startBinaryRouter({
    onBlock(peer, transmissions) {
      pings += transmissions.length;
      if (pings === 1) answering('PONG')(peer, transmissions);
    },
  });
  // As usual, the time for an answer is shorter than the time between two PINGs.
  const sessions = createRouterSessions('smp', { pingIntervalMs: 700, commandTimeoutMs: 500 });
  await sessions.ask('user', server.address, [PING]);
  expect(server.connected()).toBe(1);
  await eventually('the end', async () => server.connected() === 0);
  await sessions.close();
  await server.stop();

  expect(pings).toBe(1 + 3);
});

test('N19 a router that tells things and reads nothing is left before much waits for it', async () => {
  const [ours, theirs] = duplexPair();
  const facts = PROTOCOLS.smp;
  const id = randomBytes(32);
  const session = beginSession(
    'smp',
    ours,
    { facts, version: 9, id },
    {
      ...{ timeoutMs: 1_000, commandTimeoutMs: 20, pingIntervalMs: 60_000 },
    },
  );
  let ended: string | undefined;
  void session.ended.then(({ code, detail }) => (ended = `${code} ${detail}`));
  const unnamed = [NOTHING, NOTHING, NOTHING].map(shortString);
  const end = Buffer.concat([...unnamed, ascii('END')]);
  const block = padBlock(Buffer.concat([Buffer.from([1]), longString(end)]), facts.blockBytes);
  const telling = setInterval(() => theirs.write(block), 5);
  for (let asked = 0; asked < 8 && ended === undefined; asked += 1) {
    await Promise.all(Array.from({ length: 512 }, () => session.ask([PING])));
  }
  clearInterval(telling);
  session.close();

  expect(ended).toBe('TIMEOUT the router reads nothing');
  expect(session.waiting).toBe(0);
});

test('N19 what is larger than a block is refused by itself', async () => {
  const session = { ...PING, entityId: Buffer.alloc(256) };

  expect(await asking({ onBlock: answering('PONG') }, [session, PING])).toEqual([
    'BROKER TRANSPORT PING: a short string has 256 bytes',
    'PONG',
  ]);
});

test('N19 closing waits for no router that is silent, before TLS or after it', async () => {
  const accepted: unknown[] = [];
  const beforeTls = createServer((socket) => void accepted.push(socket));
  const port = await listen(beforeTls);
  const afterTls = await startBinaryRouter({ helloParts: 0 });
  const sessions = createRouterSessions('smp', { timeoutMs: 600_000 });
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

  expect([both, alone].map(([result]) => outcomeOf(result!))).toEqual([
    'PONG',
    'BROKER NETWORK no hello in time',
  ]);
});

test('N19 a hello that comes in many parts is put together, without a warning', async () => {
  const warnings: string[] = [];
  const note = ({ name }: Error): void => void warnings.push(name);
  process.on('warning', note);
  const outcomes = await asking({ helloParts: 64, onBlock: answering('PONG') }, [PING]);
  process.off('warning', note);

  expect([outcomes, warnings]).toEqual([['PONG'], []]);
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
      outcomes.push(outcomeOf(result!));
    }
    await sessions.close();
    relay.stop();
    await router.stop();
    process.off('uncaughtException', note);

    expect(broken).toEqual([]);
    for (const outcome of outcomes) expect(outcome).toMatch(/^BROKER NETWORK/);
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
  });
  return {
    port: await listen(server),
    stop() {
      server.close();
      for (const client of clients) client.destroy();
    },
  };
}

test('N19 a name that leads nowhere is an error of the host', async () => {
  const [outcome] = await asking({}, [PING], { address: { host: 'router.invalid' } });

  expect(outcome).toMatch(/^BROKER (HOST|NETWORK)/);
});

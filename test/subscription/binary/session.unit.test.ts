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
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { listen } from '../../../dev/servers/ports.ts';
import { eventually } from '../../eventually.ts';
import type { BinaryRouterOptions, Peer } from './router.ts';
import { answering, startBinaryRouter } from './router.ts';

const NOTHING = Buffer.alloc(0);
const PING: SessionCommand = { command: { op: 'PING' } };
const key = generateAuthKeys().privateKey;
const ndel = (): SessionCommand => ({ entityId: randomBytes(24), command: { op: 'NDEL' }, key });
const ascii = (text: string): Buffer => Buffer.from(text, 'latin1');

/** What ends with the test, the last one first. */
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function startRouter(options?: BinaryRouterOptions) {
  const router = await startBinaryRouter(options);
  ends.push(router.stop);
  return router;
}

function openSessions(options?: Partial<SessionOptions>, protocol: RouterProtocol = 'smp') {
  const sessions = createRouterSessions(protocol, options);
  ends.push(sessions.close);
  const ask = async (address: RouterAddress, commands = [PING], user = 'user') =>
    (await sessions.ask(user, address, commands)).map(outcomeOf);
  return { ask, close: sessions.close };
}

/** Asks a router of the test. @param address what is different from where it listens. */
async function asking(
  options: BinaryRouterOptions,
  commands = [PING],
  address: Partial<RouterAddress> = {},
): Promise<string[]> {
  const router = await startRouter(options);
  return openSessions({}, options.protocol).ask({ ...router.address, ...address }, commands);
}

/** The process is told nothing of this kind until all else of the test has ended. */
function expectNo(kind: 'warning' | 'unhandledRejection' | 'uncaughtException'): void {
  const told: unknown[] = [];
  const note = (what: unknown): void => void told.push(what);
  process.on(kind, note);
  ends.push(() => {
    process.off(kind, note);
    expect(told).toEqual([]);
  });
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
  const outcomes = await asking({
    ...{ hasAlpn: false, versions: [4, 9] },
    onSession: ({ binding }) => (version = binding.version),
    onBlock: answering('PONG'),
  });

  expect([version, ...outcomes]).toEqual([6, 'PONG']);
});

test('N19 a hello of another TLS session is refused', async () => {
  const hello = () => Buffer.concat([word16(6), word16(9), shortString(randomBytes(32))]);

  expect(await asking({ hello })).toEqual(['BROKER RESPONSE the hello is of another TLS session']);
});

test.each([
  [`${'a'.repeat(56)}.onion`, /^BROKER HOST all hosts are onion hosts$/],
  ['router.invalid', /^BROKER (HOST|NETWORK)/],
])('N19 %s is not reached, which is an error of the host', async (host, why) => {
  expect(await asking({}, [PING], { host })).toEqual([expect.stringMatching(why)]);
});

describe('hostile routers', () => {
  const stranger = { correlationId: randomBytes(24), entityId: NOTHING, content: ascii('OK') };
  const unasked = (text: string) => ({ ...stranger, correlationId: NOTHING, content: ascii(text) });

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
    ['an answer without a question', (peer) => peer.answer(unasked('OK')), 'an answer has no question'],
    [
      'an unknown word',
      (peer) => peer.answer(unasked('HELLO')),
      'an answer begins with no word of the protocol',
    ],
    [
      'a flood',
      (peer) => {
        const block = Array.from({ length: 250 }, () => unasked('END'));
        for (let blocks = 0; blocks < 5; blocks += 1) peer.answer(...block);
      },
      'more is told than anybody asked for',
    ],
    [
      'an answer about something else',
      (peer, first) => peer.answer({ ...first, entityId: randomBytes(24), content: ascii('OK') }),
      'an answer is about something else than the question',
    ],
  ])('N19 %s ends the session', async (_, write, why) => {
    const outcomes = await asking({ onBlock: (peer, [first]) => write(peer, first!) }, [ndel(), ndel()]);
    expect(outcomes).toEqual(Array(2).fill(`BROKER RESPONSE ${why}`));
  });

  test('N19 an error that names no command ends the session', async () => {
    const outcomes = await asking({ onBlock: (peer) => peer.answer(unasked('ERR BLOCK')) }, [ndel(), ndel()]);
    expect(outcomes).toEqual(['SMP BLOCK', 'SMP BLOCK']);
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
  const server = await startRouter();
  const { ask } = openSessions({ commandTimeoutMs: 100 });
  const outcomes = [await ask(server.address), await ask(server.address)];

  expect(outcomes).toEqual(Array(2).fill(['BROKER TIMEOUT no answer within 100 ms']));
  expect(server.sessions()).toBe(2);
});

test('N19 a late answer is not an answer to no command', async () => {
  const late: (() => void)[] = [];
  const server = await startRouter({
    onBlock(peer, transmissions) {
      for (const one of transmissions) {
        // Another command is answered meanwhile, so the session is alive.
        const answer = () => peer.answer({ ...one, content: ascii('PONG') });
        if (late.length === 0) late.push(answer);
        else answer();
      }
    },
  });
  const { ask } = openSessions({ commandTimeoutMs: 1_500 });
  const outcomes = await Promise.all([ask(server.address), ask(server.address)]);
  late[0]!();

  expect([...outcomes, await ask(server.address)]).toEqual([
    ['BROKER TIMEOUT no answer within 1500 ms'],
    ['PONG'],
    ['PONG'],
  ]);
  expect(server.sessions()).toBe(1);
});

test('N19 each user has its own session, which is held, and opened again after it broke', async () => {
  const server = await startRouter({ onBlock: answering('PONG') });
  const sessions = openSessions();
  const ask = async (user: string) => (await sessions.ask(server.address, [PING], user))[0];
  const outcomes = [await ask('one'), await ask('two'), await ask('one')];
  const held = server.sessions();
  server.dropAll();
  await eventually('a new session', async () => (await ask('one')) === 'PONG');
  const opened = server.sessions();
  await sessions.close();

  expect(outcomes).toEqual(['PONG', 'PONG', 'PONG']);
  expect([held, opened, await ask('one')]).toEqual([2, 3, 'AGENT INACTIVE']);
});

test('N19 the time to connect ends no session that was opened in time', async () => {
  const server = await startRouter({ onBlock: answering('PONG') });
  const { ask } = openSessions();
  const timeToConnect = new AbortController();
  jest.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(timeToConnect.signal);
  expect(await ask(server.address)).toEqual(['PONG']);
  timeToConnect.abort();
  expect(await ask(server.address)).toEqual(['PONG']);
  expect(server.sessions()).toBe(1);
});

test('N19 a session that could not be opened is forgotten among many others, and harms no other session', async () => {
  expectNo('unhandledRejection');
  const silent = createServer((socket) => void socket.on('error', () => undefined));
  ends.push(() => silent.close());
  const address = { host: '127.0.0.1', port: await listen(silent), keyHash: '' } as const;
  const { ask } = openSessions({ timeoutMs: 1_000 });
  const first = ask(address, [PING], 'first');
  const others = Array.from({ length: 300 }, (_, user) =>
    ask({ ...address, port: 1 }, [PING], `user ${user}`),
  );
  await Promise.all(others);

  expect(await first).toEqual([expect.stringMatching(/^BROKER NETWORK/)]);
});

test('N19 a router that says nothing is pinged, and left when it misses three', async () => {
  let pings = 0;
  const server = await startRouter({
    onBlock(peer, transmissions) {
      pings += transmissions.length;
      if (pings === 1) answering('PONG')(peer, transmissions);
    },
  });
  // As usual, the time for an answer is shorter than the time between two PINGs.
  await openSessions({ pingIntervalMs: 700, commandTimeoutMs: 500 }).ask(server.address);
  expect(server.connected()).toBe(1);
  await eventually('the end', async () => server.connected() === 0);

  expect(pings).toBe(1 + 3);
});

test('N19 a router that tells things and reads nothing is left before much waits for it', async () => {
  const [ours, theirs] = duplexPair();
  const facts = PROTOCOLS.smp;
  const id = randomBytes(32);
  const options = { timeoutMs: 1_000, commandTimeoutMs: 20, pingIntervalMs: 60_000 };
  const session = beginSession('smp', ours, { facts, version: 9, id }, options);
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

test('N17 N19 closing waits for no router that is silent: before TLS, after it, or once it was asked', async () => {
  const accepted: unknown[] = [];
  const beforeTls = createServer((socket) => void accepted.push(socket));
  const port = await listen(beforeTls);
  ends.push(() => beforeTls.close());
  const afterTls = await startRouter({ helloParts: 0 });
  const blocks: unknown[] = [];
  const afterHello = await startRouter({ onBlock: (_, transmissions) => blocks.push(transmissions) });
  const { ask, close } = openSessions({ timeoutMs: 600_000 });
  const asked = [ask({ ...afterTls.address, port }), ask(afterTls.address), ask(afterHello.address)];
  await eventually(
    'all to be under way',
    async () => accepted.length === 1 && afterTls.connected() === 1 && blocks.length > 0,
  );
  await close();

  expect(await Promise.all(asked)).toEqual(Array(3).fill(['AGENT INACTIVE']));
  await eventually('the socket to be closed', async () => afterTls.connected() === 0);
});

test('N19 a host that is silent after TLS leaves time for the next one', async () => {
  const router = await startRouter({ onBlock: answering('PONG') });
  const { port } = router.address;
  const silent = await startRouter({ helloParts: 0, at: { host: '127.0.0.2', port } });
  const { ask } = openSessions({ timeoutMs: 4_000 });

  expect(await ask({ ...router.address, host: '127.0.0.2,127.0.0.1' })).toEqual(['PONG']);
  expect(await ask(silent.address)).toEqual(['BROKER NETWORK no hello in time']);
});

test('N19 a hello that comes in many parts is put together, without a warning', async () => {
  expectNo('warning');

  expect(await asking({ helloParts: 64, onBlock: answering('PONG') })).toEqual(['PONG']);
});

// Within TLS, within the hello, and once the session is there.
test.each([0, 1, 8_000, 30_000])(
  'N19 a way that breaks off after %i bytes of the router is told as a broken connection',
  async (bytes) => {
    expectNo('uncaughtException');
    const router = await startRouter({ onBlock: answering('PONG') });
    const port = await startBreakingRelay(router.address.port, bytes);
    const { ask } = openSessions({ timeoutMs: 5_000, commandTimeoutMs: 5_000 });
    for (let time = 0; time < 2; time += 1) {
      expect(await ask({ ...router.address, port })).toEqual([expect.stringMatching(/^BROKER NETWORK/)]);
    }
  },
);

/** Leads to a port of the loopback, and resets each connection after so many bytes from there. @returns its port. */
async function startBreakingRelay(port: number, resetAfterBytes: number): Promise<number> {
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
  ends.push(() => {
    server.close();
    for (const client of clients) client.destroy();
  });
  return listen(server);
}

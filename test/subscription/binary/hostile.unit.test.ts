/** Clients of binary routers that mean no good, or have a fault: a router outlives them, and answers the others. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import path from 'node:path';
import { connect } from 'node:tls';
import fc from 'fast-check';
import { eventually } from '../../eventually.ts';
import type { BinaryClient, Protocol } from './client.ts';
import { BLOCK, blockOf, join, newKeys, sized, text, wide } from './client.ts';
import type { BinaryRouters } from './routers.ts';
import { makeQueue, startBinaryRouters } from './routers.ts';

/** `FUZZ_CASES=100000` for a long run. */
const CASES = Math.max(300, Math.round(Number(process.env['FUZZ_CASES'] ?? 1_000) / 4));
const LIMIT_MS = 60_000 + CASES * 40;

const PONG = text('PONG');
const BAD_BLOCK = text('ERR BLOCK');

let routers: BinaryRouters;

beforeEach(async () => {
  routers = await startBinaryRouters();
});

afterEach(() => routers.stop());

/** What clients sent to official routers. */
function recordedBy(name: string): Buffer[] {
  const file = path.join(import.meta.dirname, 'recordings', `${name}.json`);
  const { blocks } = JSON.parse(readFileSync(file, 'utf8')) as { blocks: { from: string; hex: string }[] };
  return blocks
    .filter(({ from }) => from === 'client')
    .slice(1)
    .map(({ hex }) => Buffer.from(hex, 'hex'));
}

/** A block with some of its bytes changed, cut out or put in. */
function disturbed(recorded: Buffer[], size: number): fc.Arbitrary<Buffer> {
  const change = fc.record({
    at: fc.nat({ max: 1_999 }),
    kind: fc.constantFrom('set', 'cut', 'insert', 'flip'),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 40 }),
  });
  const content = fc
    .tuple(fc.constantFrom(...recorded), fc.array(change, { maxLength: 4 }))
    .map(([block, changes]) => {
      let bytes = Buffer.from(block);
      for (const { at, kind, bytes: others } of changes) {
        const place = at % (bytes.length + 1);
        const [front, back] = [bytes.subarray(0, place), bytes.subarray(place)];
        const other = Buffer.from(others);
        if (kind === 'set') bytes = Buffer.concat([front, other, back.subarray(other.length)]);
        else if (kind === 'cut') bytes = Buffer.concat([front, back.subarray(other.length)]);
        else if (kind === 'insert') bytes = Buffer.concat([front, other, back]);
        else if (place < bytes.length) bytes[place]! ^= 1 << (other[0]! % 8);
      }
      return blockOf(bytes.subarray(0, size - 2), size);
    });
  return fc.oneof(
    { weight: 8, arbitrary: content },
    {
      weight: 1,
      arbitrary: fc.uint8Array({ minLength: size, maxLength: size }).map((bytes) => Buffer.from(bytes)),
    },
    // A length that is more than there is.
    { weight: 1, arbitrary: fc.constant(Buffer.alloc(size, 0xff)) },
  );
}

test.each<[Protocol, string]>([
  ['smp', 'smp-v9'],
  ['ntf', 'ntf-v2'],
])(
  'N17 a %s router answers pings after any block, in the same connection',
  async (protocol, name) => {
    let client: BinaryClient | undefined;
    await fc.assert(
      fc.asyncProperty(disturbed(recordedBy(name), BLOCK[protocol]), async (block) => {
        client = client?.socket.destroyed === false ? client : await routers.client(protocol);
        client.write(block);
        expect(await client.send({ content: 'PING' })).toEqual([PONG]);
        // It looks through all that was said for the next answer.
        client.said.length = client.blocks.length = 0;
      }),
      { numRuns: CASES, endOnFailure: true },
    );
    expect((protocol === 'smp' ? routers.smp : routers.ntf).sockets.opened).toBe(1);
  },
  LIMIT_MS,
);

test('N17 invalid blocks are refused as a whole', async () => {
  const client = await routers.client('smp');
  const ping = client.transmissionOf({ content: 'PING' });
  const size = BLOCK.smp;
  const nonce = sized(randomBytes(24));
  const wrong = [
    // No transmissions; fewer, and more, than it says.
    blockOf(Buffer.from([0]), size),
    blockOf(join(Buffer.from([2]), wide(ping)), size),
    blockOf(join(Buffer.from([1]), wide(ping), wide(ping)), size),
    // More content than the block has; a transmission that is cut off.
    Buffer.alloc(size, 0xff),
    blockOf(join(Buffer.from([1]), wide(text('\x40'))), size),
    // An authorization, and a correlation id, of no length there is.
    client.blockWith([join(sized(randomBytes(63)), nonce, sized(''), 'PING')]),
    client.blockWith([join(sized(''), sized('short'), sized(''), 'PING')]),
  ];
  for (const block of wrong) client.write(block);
  await eventually('the refusals', async () => client.said.length === wrong.length);

  expect(client.said.map(({ content }) => content)).toEqual(wrong.map(() => BAD_BLOCK));
  expect(routers.smp.calls).toEqual([]);
});

test('N17 a key that leads to no secret makes no queue', async () => {
  const client = await routers.client('smp');
  const keys = newKeys('ed25519');
  const zero = join(newKeys('x25519').publicDer.subarray(0, 12), Buffer.alloc(32));

  expect(
    await client.send({ content: join('NEW ', sized(keys.publicDer), sized(zero), '0CF'), keys }),
  ).toEqual([text('ERR CMD SYNTAX')]);
  expect(routers.smp.queues()).toEqual([]);
});

test('N17 a client whose first block is no hello is cut off', async () => {
  const { host, port } = routers.smp.address;
  const socket = connect({ host, port, rejectUnauthorized: false, ALPNProtocols: ['smp/1'] });
  socket.on('error', () => undefined).resume();
  const closed = new Promise((resolve) => void socket.once('close', resolve));
  socket.write(Buffer.alloc(BLOCK.smp, 0xff));
  await closed;

  expect(await (await routers.client('smp')).send({ content: 'PING' })).toEqual([PONG]);
});

test('N17 a client whose connection is reset while it is answered harms no other client', async () => {
  const { host, port } = routers.smp.address;
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  const socket = connectTcp(port, host);
  const client = await routers.client('smp', { tls: { socket } });
  const ping = client.blockWith([client.transmissionOf({ content: 'PING' })]);
  socket.pause();
  for (let sent = 0; sent < 1_000; sent++) client.write(ping);
  await eventually('the router to answer', async () => routers.smp.calls.length > 0);
  socket.resetAndDestroy();
  await eventually('the end of the connection', async () => routers.smp.sockets.open === 0);

  expect(await (await routers.client('smp')).send({ content: 'PING' })).toEqual([PONG]);
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
});

test('N17 a client that does not read is not heard either, until it reads', async () => {
  const client = await routers.client('smp');
  const ping = client.blockWith([client.transmissionOf({ content: 'PING' })]);
  client.socket.pause();
  let sent = 0;
  for (; sent < 2_000; sent++) client.write(ping);
  let heard = 0;
  await eventually('the router to hear no more', async () => {
    const before = heard;
    heard = routers.smp.calls.length;
    return heard > 0 && heard === before;
  });
  expect(heard).toBeLessThan(sent);
  await makeQueue(await routers.client('smp'));

  client.socket.resume();
  await eventually('all answers', async () => client.said.length === sent);
  expect(client.socket.destroyed).toBe(false);
});

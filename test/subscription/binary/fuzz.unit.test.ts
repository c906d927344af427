/**
 * Blocks as hostile routers send them: what official ones have said, changed in all ways. `FUZZ_CASES=100000 npm test --
 * binary/fuzz` for a long run.
 */
import { randomBytes } from 'node:crypto';
import { duplexPair } from 'node:stream';
import fc from 'fast-check';
import {
  MalformedError,
  createBlockReader,
  padBlock,
  unpadBlock,
  encodeTransmission,
  packTransmissions,
  unpackTransmissions,
} from '../../../activities/subscription/router/blocks.ts';
import { readHello } from '../../../activities/subscription/router/connect.ts';
import { beginSession } from '../../../activities/subscription/router/sessions.ts';
import type { SessionBinding } from '../../../activities/subscription/router/blocks.ts';
import type { Transcript } from './recordings.ts';
import { loadTranscript } from './recordings.ts';

const CASES = Number(process.env['FUZZ_CASES'] ?? 1_000);
jest.setTimeout(60_000 + CASES * 5);
/** Sessions that wait for their time-outs side by side. */
const AT_ONCE = 500;
const BRIEF_MS = 500;
const TRANSCRIPTS = ['smp-v4', 'smp-v9', 'ntf-v1', 'ntf-v2'].map(loadTranscript);
const OPTIONS = { timeoutMs: 5_000, commandTimeoutMs: 5_000, pingIntervalMs: 60_000 };

/** A change of some bytes: flipped, overwritten, cut out, doubled or put in. */
const change = fc.record({
  kind: fc.constantFrom('flip', 'set', 'cut', 'double', 'insert'),
  at: fc.nat(),
  length: fc.nat(40),
  value: fc.constantFrom(0, 1, 0x18, 0x20, 0x23, 0x7f, 0xff),
});
type Change = typeof change extends fc.Arbitrary<infer Value> ? Value : never;

function changed(bytes: Buffer, changes: readonly Change[]): Buffer {
  return changes.reduce((before, { kind, at, length, value }) => {
    const from = at % (before.length + 1);
    const [head, part, tail] = [
      before.subarray(0, from),
      before.subarray(from, from + length),
      before.subarray(from + length),
    ];
    switch (kind) {
      case 'flip':
        return Buffer.concat([head, part.map((byte) => byte ^ (value || 0x80)), tail]);
      case 'set':
        return Buffer.concat([head, Buffer.alloc(part.length, value), tail]);
      case 'cut':
        return Buffer.concat([head, tail]);
      case 'double':
        return Buffer.concat([head, part, part, tail]);
      case 'insert':
        return Buffer.concat([head, Buffer.alloc(length, value), part, tail]);
    }
  }, bytes);
}

const cases = fc.record({
  transcript: fc.constantFrom(...TRANSCRIPTS),
  block: fc.nat(),
  changes: fc.array(change, { maxLength: 3 }),
  /** Of the block as it travels, length and padding included. */
  outside: fc.array(change, { maxLength: 1 }),
  /** Whether it answers a command that was asked, as far as the changes leave it. */
  isAnswer: fc.boolean(),
});

type Case = typeof cases extends fc.Arbitrary<infer Value> ? Value : never;

test('N19 a hello is read or refused, whatever it is', () => {
  fc.assert(
    fc.property(cases, ({ transcript, changes }) => {
      const { hello } = transcript;
      try {
        readHello(changed(hello, changes));
      } catch (error) {
        expect(error).toBeInstanceOf(MalformedError);
      }
    }),
    { numRuns: Math.ceil(CASES / 4) },
  );
});

test('N19 whatever a router answers, every command comes out, and the session has ended or goes on to answer', async () => {
  const outcomes: string[] = [];
  const left = fc.sample(cases, CASES);
  while (left.length > 0) {
    outcomes.push(...(await Promise.all(left.splice(0, AT_ONCE).map(outcomeAfter))));
  }

  expect(outcomes).toHaveLength(CASES);
  expect(outcomes.filter((outcome) => outcome.startsWith('stuck'))).toEqual([]);
  // Both happen, so that both are tried.
  expect(new Set(outcomes)).toEqual(new Set(['ended', 'answers']));
});

/** The router says something hostile to the first block, stays connected, and answers the following ones as it must. */
async function outcomeAfter(one: Case): Promise<string> {
  const { transcript } = one;
  const [ours, theirs] = duplexPair();
  const binding = transcript.session;
  let blocks = 0;
  const read = createBlockReader(transcript.blockBytes, (asked) => {
    blocks += 1;
    const content = unpadBlock(asked);
    if (blocks === 1) theirs.write(hostileBlock(one, content));
    else for (const pong of pongsTo(content, binding)) theirs.write(padBlock(pong, transcript.blockBytes));
  });
  theirs.on('data', read);
  theirs.on('error', () => theirs.destroy());
  const session = beginSession(transcript.protocol, ours, binding, {
    ...OPTIONS,
    commandTimeoutMs: BRIEF_MS,
  });
  let isOver = false;
  void session.ended.then(() => (isOver = true));
  const ping = { command: { op: 'PING' } } as const;
  expect(await session.ask([ping, ping, ping])).toHaveLength(3);
  const [again] = await session.ask([ping]);
  const stillWaiting = session.waiting;
  session.close();
  theirs.destroy();
  if (stillWaiting > 0) return 'stuck';
  if (again!.ok && again!.value.op === 'PONG') return 'answers';
  return isOver ? 'ended' : `stuck: ${JSON.stringify({ ...one, transcript: undefined, again })}`;
}

function pongsTo(asked: Buffer, binding: SessionBinding): Buffer[] {
  const answers = unpackTransmissions(asked, binding).map(({ correlationId }) =>
    encodeTransmission({ correlationId, entityId: Buffer.alloc(0), content: Buffer.from('PONG') }, binding),
  );
  return packTransmissions(answers, binding).map(({ content }) => content);
}

/** What the router says to the commands in `asked`: a block as it travels, of any length. */
function hostileBlock({ transcript, block, changes, outside, isAnswer }: Case, asked: Buffer): Buffer {
  const said = transcript.answers[block % transcript.answers.length]!;
  const content = changed(isAnswer ? addressedTo(asked, said, transcript) : said, changes);
  const most = transcript.blockBytes - 2;
  return changed(padBlock(content.subarray(0, most), transcript.blockBytes), outside);
}

/** A recorded answer with the correlation id of a command that was asked just now, where ids are as long as that. */
function addressedTo(asked: Buffer, said: Buffer, transcript: Transcript): Buffer {
  const { session } = transcript;
  const [first] = unpackTransmissions(asked, session);
  const [answer] = unpackTransmissions(said, session);
  const id = Buffer.from(first?.correlationId ?? randomBytes(24));
  const at = said.indexOf(
    Buffer.concat([Buffer.from([answer!.correlationId.length]), answer!.correlationId]),
  );
  if (answer!.correlationId.length !== id.length) return said;
  return Buffer.concat([said.subarray(0, at + 1), id, said.subarray(at + 1 + id.length)]);
}

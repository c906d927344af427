/** The contract of outcomes: its page, its vectors, and the readers of all languages, which test the same vectors. */
import { readFileSync } from 'node:fs';
import type { Outcome, OutcomeKind } from '../../api/intent/outcome.ts';
import {
  OUTCOMES_STREAM,
  OUTCOME_KINDS,
  OutcomeError,
  TERMINAL_OUTCOMES,
  fieldsOfOutcome,
  isTerminal,
  readOutcome,
} from '../../api/intent/outcome.ts';
import { fieldsOf } from '../../api/stream-ids.ts';
import { readOutcomes } from '../../client/outcomes.ts';
import { loadConfig } from '../../config/load.ts';
import { publishedContract } from '../published-contract.ts';

type Fields = Record<string, string>;
interface Contract {
  channels: { outcomes: { address: string; messages: object } };
  components: { messages: Record<string, { examples: { payload: Fields }[] }> };
}

const { document: contract, problems } = publishedContract<Contract>('intent/outcomes-asyncapi.yaml');
const vectors = JSON.parse(readFileSync('api/intent/outcome-vectors.json', 'utf8')) as {
  read: Fields[];
  refused: { fields: Fields; about: string }[];
};
const isOf = (kind: string, fields: Fields): boolean =>
  problems(['components', 'messages', kind, 'payload'], fields).length === 0;

test('Q1 the contract has each kind once, the stream of the default, and the vectors of all languages as examples', () => {
  const { outcomes } = contract.channels;
  const { messages } = contract.components;
  expect(outcomes.address).toBe(OUTCOMES_STREAM);
  expect(Object.keys(messages).sort()).toEqual([...OUTCOME_KINDS].sort());
  expect(Object.keys(outcomes.messages).sort()).toEqual([...OUTCOME_KINDS].sort());
  const examples = Object.values(messages).flatMap((message) => message.examples);
  expect(vectors.read).toEqual(examples.map(({ payload }) => payload));
});

test.each(vectors.read.map((fields) => [fields['kind']!, fields] as const))(
  'Q1 an event of the kind %s keeps its contract and is read',
  (kind, fields) => {
    expect(isOf(kind, fields)).toBe(true);
    const outcome = readOutcome({ ...fields, added_later: 'x' });
    expect(outcome).toMatchObject({
      ...{ kind, eventId: fields['event_id'], notificationId: fields['notification_id'] },
    });
    expect(isTerminal(outcome)).toBe((TERMINAL_OUTCOMES as readonly string[]).includes(kind));
    expect(Object.keys(outcome)).toHaveLength(Object.keys(fields).length);
  },
);

test.each(vectors.refused)('Q1 an entry with a wrong $about is refused by its name', ({ fields, about }) => {
  expect(() => readOutcome(fields)).toThrow(OutcomeError);
  expect(() => readOutcome(fields)).toThrow(about);
});

test('Q1 what the service writes of a row keeps the contract', () => {
  const written = (kind: OutcomeKind, details: Record<string, string | number | null>) => {
    const about = ['1-0', 'game.turn.ready', 'game_master', 'k', null, null] as const;
    return fieldsOf(fieldsOfOutcome(['1-0/end', kind, ...about, details], 1_790_000_000_000));
  };
  const settled = written('settled', { published: 2, skipped: 0, dead_lettered: 0 });
  expect(isOf('settled', settled)).toBe(true);
  expect(settled).not.toHaveProperty('request_id');
  const route = { route: 'push:user:u', channel: 'push', generation: 0, reason: null };
  expect(isOf('route_published', written('route_published', route))).toBe(true);
});

test('Q1 which kinds are told is a variable; the ends are among them always', () => {
  const kinds = (text: string) => loadConfig({ NOTIFICATION_OUTCOMES: text }).values.NOTIFICATION_OUTCOMES;
  expect(loadConfig({}).values.NOTIFICATION_OUTCOMES).toEqual([]);
  expect(kinds('all')).toEqual(OUTCOME_KINDS);
  expect(kinds('ends')).toEqual(TERMINAL_OUTCOMES);
  expect(kinds('recovered, accepted')).toEqual([...TERMINAL_OUTCOMES, 'recovered', 'accepted']);
  expect(() => kinds('settled,delivered')).toThrow(
    /NOTIFICATION_OUTCOMES must be none, ends, all, or some of/,
  );
});

describe('Q1 the reader', () => {
  const settled = vectors.read[0]!;
  const entry = (id: string, fields: Fields): [string, string[]] => [id, Object.entries(fields).flat()];

  /** Answers reads in this order, and then with nothing. */
  function sourceOf(...answers: (unknown[] | Error)[]) {
    const calls: string[] = [];
    const noted =
      (command: string) =>
      async (...args: unknown[]) =>
        void calls.push(`${command} ${args.join(' ')}`);
    return {
      ...{ calls, xgroup: noted('XGROUP'), xack: noted('XACK') },
      async xreadgroup(...args: unknown[]) {
        calls.push(`XREADGROUP ${args.join(' ')}`);
        const answer = answers.shift();
        if (answer instanceof Error) throw answer;
        return answer ? [[OUTCOMES_STREAM, answer]] : null;
      },
    };
  }

  async function take(
    source: ReturnType<typeof sourceOf>,
    count: number,
    more: { onUnreadable?: (error: Error, id: string) => void } = {},
  ) {
    const stopping = new AbortController();
    const taken: Outcome[] = [];
    const options = { group: 'g', consumer: 'c', signal: stopping.signal, ...more };
    for await (const outcome of readOutcomes(source, options))
      if (taken.push(outcome) === count) stopping.abort();
    return taken;
  }

  test('begins with what it had not acknowledged, and acknowledges what was worked on', async () => {
    const source = sourceOf([entry('1-0', settled)], [], [entry('2-0', settled)]);
    expect(await take(source, 2)).toHaveLength(2);
    expect(source.calls.map((call) => call.split(' STREAMS ').at(-1))).toEqual([
      `XGROUP CREATE ${OUTCOMES_STREAM} g 0 MKSTREAM`,
      `${OUTCOMES_STREAM} 0`,
      `XACK ${OUTCOMES_STREAM} g 1-0`,
      `${OUTCOMES_STREAM} 1-0`,
      `${OUTCOMES_STREAM} >`,
      `XACK ${OUTCOMES_STREAM} g 2-0`,
    ]);
  });

  test('makes its group again when the stream was deleted', async () => {
    const source = sourceOf([], new Error('NOGROUP No such key'), [entry('1-0', settled)]);
    expect(await take(source, 1)).toHaveLength(1);
    expect(source.calls.filter((call) => call.startsWith('XGROUP'))).toHaveLength(2);
  });

  test('throws what it cannot read, unless the caller takes it', async () => {
    const strange = entry('1-0', { kind: 'delivered' });
    await expect(take(sourceOf([strange]), 1)).rejects.toThrow(OutcomeError);
    const onUnreadable = jest.fn();
    const source = sourceOf([strange, entry('2-0', settled)]);
    expect(await take(source, 1, { onUnreadable })).toHaveLength(1);
    expect(onUnreadable.mock.calls).toEqual([[expect.any(OutcomeError), '1-0']]);
    expect(source.calls).toContain(`XACK ${OUTCOMES_STREAM} g 1-0`);
  });
});

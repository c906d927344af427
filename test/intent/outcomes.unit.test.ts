/** The contract of outcomes: its page, its vectors, and the readers of all languages, which test the same vectors. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
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
import type { OutcomeSource } from '../../client/outcomes.ts';
import { readOutcomes } from '../../client/outcomes.ts';
import { loadConfig } from '../../config/load.ts';
import { publishedContract } from '../published-contract.ts';

const ROOT = path.join(import.meta.dirname, '../../api/intent');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

type Fields = Record<string, string>;
interface Contract {
  channels: { outcomes: { address: string; messages: object } };
  components: { messages: Record<string, { examples: { payload: Fields }[] }> };
}

const { document: contract, problems } = publishedContract<Contract>('intent/outcomes-asyncapi.yaml');
const vectors = JSON.parse(read('outcome-vectors.json')) as {
  read: Fields[];
  refused: { fields: Fields; about: string }[];
};
const isOf = (kind: string, fields: Fields): boolean =>
  problems(['components', 'messages', kind, 'payload'], fields).length === 0;

test('Q1 the contract has each kind once, and the stream of the default', () => {
  const { outcomes } = contract.channels;
  expect(outcomes.address).toBe(OUTCOMES_STREAM);
  expect(Object.keys(contract.components.messages).sort()).toEqual([...OUTCOME_KINDS].sort());
  expect(Object.keys(outcomes.messages).sort()).toEqual([...OUTCOME_KINDS].sort());
});

test('Q1 the examples of the contract are the vectors that every language reads', () => {
  const examples = Object.values(contract.components.messages).flatMap(({ examples: of }) =>
    of.map(({ payload }) => payload),
  );
  expect(vectors.read).toEqual(examples);
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
  const row = (kind: OutcomeKind, details: Record<string, string | number | null>) =>
    fieldsOfOutcome(
      ['1-0/end', kind, '1-0', 'game.turn.ready', 'game_master', 'k', null, null, details],
      1_790_000_000_000,
    );
  const settled = fieldsOf(row('settled', { published: 2, skipped: 0, dead_lettered: 0 }));
  expect(isOf('settled', settled)).toBe(true);
  expect(settled).not.toHaveProperty('request_id');
  const published = row('route_published', {
    ...{ route: 'push:user:u', channel: 'push', generation: 0, reason: null },
  });
  expect(isOf('route_published', fieldsOf(published))).toBe(true);
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
  function sourceOf(answers: (unknown[] | Error)[]) {
    const calls: string[] = [];
    const source: OutcomeSource = {
      async xgroup(...args) {
        calls.push(`XGROUP ${args.join(' ')}`);
      },
      async xack(...args) {
        calls.push(`XACK ${args.join(' ')}`);
      },
      async xreadgroup(...args) {
        calls.push(`XREADGROUP ${args.join(' ')}`);
        const answer = answers.shift();
        if (answer instanceof Error) throw answer;
        return answer === undefined ? null : [[OUTCOMES_STREAM, answer]];
      },
    };
    return { source, calls };
  }

  async function take(
    source: OutcomeSource,
    count: number,
    onUnreadable?: (error: Error, id: string) => void,
  ) {
    const stopping = new AbortController();
    const taken: Outcome[] = [];
    const options = { group: 'g', consumer: 'c', signal: stopping.signal };
    for await (const outcome of readOutcomes(source, onUnreadable ? { ...options, onUnreadable } : options)) {
      if (taken.push(outcome) === count) stopping.abort();
    }
    return taken;
  }

  test('begins with what it had not acknowledged, and acknowledges what was worked on', async () => {
    const { source, calls } = sourceOf([[entry('1-0', settled)], [], [entry('2-0', settled)]]);
    expect(await take(source, 2)).toHaveLength(2);
    expect(calls.map((call) => call.split(' STREAMS ').at(-1))).toEqual([
      `CREATE ${OUTCOMES_STREAM} g 0 MKSTREAM`.replace(/^/, 'XGROUP '),
      `${OUTCOMES_STREAM} 0`,
      `XACK ${OUTCOMES_STREAM} g 1-0`,
      `${OUTCOMES_STREAM} 1-0`,
      `${OUTCOMES_STREAM} >`,
      `XACK ${OUTCOMES_STREAM} g 2-0`,
    ]);
  });

  test('makes its group again when the stream was deleted', async () => {
    const { source, calls } = sourceOf([[], new Error('NOGROUP No such key'), [entry('1-0', settled)]]);
    expect(await take(source, 1)).toHaveLength(1);
    expect(calls.filter((call) => call.startsWith('XGROUP'))).toHaveLength(2);
  });

  test('throws what it cannot read, unless the caller takes it', async () => {
    const strange = entry('1-0', { kind: 'delivered' });
    await expect(take(sourceOf([[strange]]).source, 1)).rejects.toThrow(OutcomeError);
    const unreadable: string[] = [];
    const { source, calls } = sourceOf([[strange, entry('2-0', settled)]]);
    expect(await take(source, 1, (_, id) => unreadable.push(id))).toHaveLength(1);
    expect(unreadable).toEqual(['1-0']);
    expect(calls).toContain(`XACK ${OUTCOMES_STREAM} g 1-0`);
  });
});

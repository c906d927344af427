/**
 * What became of intents, for their producers: the events of the stream of outcomes.
 *
 * ```ts
 * for await (const outcome of readOutcomes(redis, { group: 'lobby', consumer: 'lobby-1' })) {
 *   if (isTerminal(outcome)) await orders.settle(outcome.idempotencyKey, outcome.kind);
 * }
 * ```
 */
import type { Outcome } from '../api/intent/outcome.ts';
import { OUTCOMES_STREAM, readOutcome } from '../api/intent/outcome.ts';
import { fieldsOf } from '../api/stream-ids.ts';

export type { Outcome, OutcomeKind } from '../api/intent/outcome.ts';
export {
  OUTCOMES_STREAM,
  OUTCOME_KINDS,
  OutcomeError,
  isTerminal,
  readOutcome,
} from '../api/intent/outcome.ts';

/** The part of a Redis client that a reader needs; ioredis has it. */
export interface OutcomeSource {
  xgroup(subcommand: 'CREATE', stream: string, group: string, id: '0', option: 'MKSTREAM'): Promise<unknown>;
  xreadgroup(
    ...what: ['GROUP', string, string, 'COUNT', number, 'BLOCK', number, 'STREAMS', string, string]
  ): Promise<unknown>;
  xack(stream: string, group: string, id: string): Promise<unknown>;
}

export interface ReadOutcomesOptions {
  /** Consumer group, one for each producer or purpose: it is made when it is not there, and then begins with the oldest event. */
  group: string;
  /** This reader within the group, e.g. the name of its process: the same after a restart. */
  consumer: string;
  /** Default {@link OUTCOMES_STREAM}. */
  stream?: string;
  /** Entries of one read; default 100. */
  count?: number;
  /** How long one read waits for entries, ms; default 2000. */
  blockMs?: number;
  /** Ends the reading, after the read that is under way. */
  signal?: { readonly aborted: boolean };
  /** Hears of entries that are no event of this release's contract; they are acknowledged. Default: they are thrown. */
  onUnreadable?: (error: Error, entryId: string) => void;
}

type Entries = [id: string, fields: string[] | null][];

/**
 * Reads events, each once it is there. An event is acknowledged when the next one is asked for: what a process did not come
 * to before it ended, it gets again. Events come at least once and in the order of each intent; who must not act twice
 * remembers `eventId`.
 *
 * @param redis a separate connection, since reads block.
 * @throws what the client fails with; OutcomeError, with the entry unacknowledged, unless `onUnreadable` is given.
 */
export async function* readOutcomes(
  redis: OutcomeSource,
  options: ReadOutcomesOptions,
): AsyncGenerator<Outcome, void, void> {
  const { group, consumer, stream = OUTCOMES_STREAM, count = 100, blockMs = 2_000, signal } = options;
  await makeGroup(redis, stream, group);
  // First what was read before and not acknowledged, then what is new.
  const isEnded = () => signal?.aborted === true;
  for (let from = '0'; !isEnded();) {
    const entries = await readGroup(from);
    if (entries.length === 0) from = '>';
    else if (from !== '>') from = entries.at(-1)![0];
    for (const [entryId, fields] of entries) {
      // Trimmed since it was read.
      const outcome = fields === null ? undefined : read(entryId, fields);
      if (outcome) yield outcome;
      await redis.xack(stream, group, entryId);
      if (isEnded()) return;
    }
  }

  async function readGroup(from: string): Promise<Entries> {
    try {
      const limits = ['COUNT', count, 'BLOCK', blockMs] as const;
      const reply = await redis.xreadgroup('GROUP', group, consumer, ...limits, 'STREAMS', stream, from);
      return (reply as [string, Entries][] | null)?.[0]?.[1] ?? [];
    } catch (error) {
      // The stream was deleted, and its groups with it.
      if (!(error instanceof Error) || !error.message.startsWith('NOGROUP')) throw error;
      await makeGroup(redis, stream, group);
      return [];
    }
  }

  function read(entryId: string, list: string[]): Outcome | undefined {
    try {
      return readOutcome(fieldsOf(list));
    } catch (error) {
      if (!options.onUnreadable) throw error;
      options.onUnreadable(error as Error, entryId);
      return undefined;
    }
  }
}

async function makeGroup(redis: OutcomeSource, stream: string, group: string): Promise<void> {
  try {
    await redis.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith('BUSYGROUP')) throw error;
  }
}

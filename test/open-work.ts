/** Work that is under way when its service stops: each kind has some, and test/platform/upgrade.hard.test.ts all of it. */
import type { Slot } from './harness.ts';
import { eventually } from './harness.ts';

/** Work of one kind, through the end of the service that has begun it. */
export interface OpenWork {
  role: string;
  /** Of the service's processes. */
  env: Record<string, string>;
  /** Gives work to a service that runs, and resolves when all of it waits for something. */
  begin(): Promise<void>;
  /** The service has ended, and there is no other one yet. */
  stopped?(): Promise<void>;
  /** What the work waited for is there again. */
  heal(): Promise<void>;
  /** Waits until all of it is done, and holds what it did against what it was to do. */
  finish(): Promise<void>;
  release(): Promise<void>;
}

/** Longer ago than any consumer waits before it takes entries over, ms. */
const LONG_IDLE_MS = 600_000;

/** Entries of a stream that its consumer has read and cannot keep, because nobody can write to a table. */
export async function holdEntries(slot: Slot, options: { stream: string; group: string; table: string }) {
  const { stream, group, table } = options;
  const operator = await slot.db.connect();
  await operator.query(`BEGIN; LOCK TABLE ${table} IN SHARE MODE`);
  const pending = async () =>
    (await slot.redis.xpending(stream, group, '-', '+', 10)) as [id: string, consumer: string][];
  return {
    /** Waits until the consumer has read this entry. */
    isHeld: (id: string) =>
      eventually(`the consumer of ${stream} to read`, async () =>
        (await pending()).some(([pendingId]) => pendingId === id),
      ),
    /** The consumer is gone. Its entries look as if that were long ago, so that nobody has to wait for them. */
    async release(): Promise<void> {
      await operator.query('ROLLBACK');
      operator.release();
      for (const [id, consumer] of await pending()) {
        await slot.redis.xclaim(stream, group, consumer, 0, id, 'IDLE', LONG_IDLE_MS, 'JUSTID');
      }
    },
  };
}

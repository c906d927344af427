/** Work that is under way when its service stops: each kind has some. */
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

/** Statements of a killed process that still wait for a lock: PostgreSQL has not noticed that the client is gone. */
const END_WAITING =
  "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

export interface Held {
  /** To be called when the service is gone; what it was waiting to write is not written any more. May be repeated. */
  release(): Promise<void>;
}

/** Waits until a statement waits for a lock. */
export const untilLocked = (db: Pick<Slot['db'], 'query'>) =>
  eventually('a statement to wait for a lock', async () => {
    const { rowCount } = await db.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return rowCount !== 0;
  });

/** Takes locks in PostgreSQL by a statement. */
export async function holdLocks(slot: Slot, statement: string): Promise<Held> {
  const operator = await slot.db.connect();
  await operator.query(`BEGIN; ${statement}`);
  let isHeld = true;
  return {
    async release() {
      if (!isHeld) return;
      isHeld = false;
      await operator.query(END_WAITING);
      await operator.query('ROLLBACK');
      operator.release();
    },
  };
}

/** Entries of a stream that its consumer has read and cannot keep, because a table refuses writes. */
export async function holdEntries(
  slot: Slot,
  options: { stream: string; group: string; table: string },
): Promise<Held & { untilRead(id: string): Promise<boolean> }> {
  const { stream, group, table } = options;
  const held = await holdLocks(slot, `LOCK TABLE ${table} IN SHARE MODE`);
  const pending = async () =>
    (await slot.redis.xpending(stream, group, '-', '+', 10)) as [id: string, consumer: string][];
  return {
    /** Waits until the consumer has read this entry. */
    untilRead: (id: string) =>
      eventually(`the consumer of ${stream} to read`, async () =>
        (await pending()).some(([pendingId]) => pendingId === id),
      ),
    /** The consumer is gone. Its entries look as if that were long ago, so that no test has to wait for them. */
    async release(): Promise<void> {
      await held.release();
      for (const [id, consumer] of await pending()) {
        await slot.redis.xclaim(stream, group, consumer, 0, id, 'IDLE', LONG_IDLE_MS, 'JUSTID');
      }
    },
  };
}

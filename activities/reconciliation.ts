/**
 * Starts work that rows ask for and that nothing does: one loop for all kinds of work. Rows are the truth and workflows
 * are their workers. An item has a worker that goes on, unless Temporal or PostgreSQL was put back to an earlier state, a
 * process died between a row and its wake, or an operator terminated the worker. Each kind lists descriptors; runs of a
 * schedule take those up, and each process looks after its own (workers/reconciler.ts).
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Logger } from 'pino';
import type { Counts } from '../workflows/recovery-contract.ts';
import { withHeartbeats } from './attempt.ts';
import { reasonOf } from './reason.ts';

/** Items of one query. */
const PAGE_SIZE = 500;
/** Items that are started concurrently: little beside what new work needs. */
const PARALLEL = 8;
/** A descriptor that has taken this long leaves its rest to the next run, ms. */
const MAX_MS = 600_000;

/** What rows, or a process, say should be done. */
export interface Reconciled<Item = unknown> {
  /** What an item is, for log lines. */
  what: string;
  /** Nothing but a loss leaves such items: a process that sees one triggers the schedule, and the log warns. */
  isLoss?: boolean;
  /** The count of the items that were looked at, if a run tells it. */
  seen?: string;
  /** The counts that `start` adds to. */
  done: readonly string[];
  /** The next items after the last one of the page before; fewer than `limit`: there are no more. */
  page(after: Item | undefined, limit: number): Promise<Item[]>;
  /** Items of one id are started together. */
  idOf(item: Item): string;
  /** Safe to repeat, and beside a worker that was overlooked. @returns what was done, by name of a count. */
  start(items: Item[]): Promise<Counts>;
}

/** @returns the descriptor of items that are few enough to be listed together. `start` returns what the count grows by. */
export const listed = <Item>({
  what,
  count,
  list,
  idOf,
  start,
}: {
  what: string;
  count: string;
  list(): Promise<readonly Item[]>;
  idOf(item: Item): string;
  start(item: Item): Promise<number>;
}): Reconciled<Item> => ({
  ...{ what, done: [count], idOf },
  page: async (after) => (after === undefined ? [...(await list())] : []),
  start: async ([item]) => ({ [count]: await start(item!) }),
});

/**
 * Takes one kind of item up, page by page. An item that fails is counted and logged, and the others go on.
 *
 * @param counts of the run so far, added to.
 * @returns whether something was done.
 * @throws what `page` fails with; the reason of `signal`.
 */
export async function reconcile(
  kind: Reconciled,
  counts: Counts,
  { log, signal }: { log: Logger; signal?: AbortSignal },
): Promise<boolean> {
  const endAt = performance.now() + MAX_MS;
  let isDone = false;
  for (let after: unknown; ;) {
    const page = await kind.page(after, PAGE_SIZE);
    await pLimit(PARALLEL).map(
      Map.groupBy(page, (item) => kind.idOf(item)),
      async ([id, items]) => {
        try {
          const done = await kind.start(items);
          add(counts, done);
          isDone ||= Object.values(done).some((count) => count > 0);
        } catch (error) {
          add(counts, { failed: 1 });
          log.warn({ what: kind.what, id, reason: reasonOf(error) }, 'work could not be taken up');
        }
      },
    );
    if (kind.seen !== undefined) add(counts, { [kind.seen]: page.length });
    signal?.throwIfAborted();
    if (page.length < PAGE_SIZE || performance.now() > endAt) return isDone;
    after = page.at(-1);
  }
}

function add(counts: Counts, more: Counts): void {
  for (const [name, count] of Object.entries(more)) counts[name] = (counts[name] ?? 0) + count;
}

export type ReconciliationActivities = ReturnType<typeof createReconciliationActivities>;

/** @param rewind of the role, if it has one. */
export function createReconciliationActivities(
  log: Logger,
  kinds: readonly Reconciled[],
  rewind: (sinceMs: number) => Promise<string | undefined> = async () => undefined,
) {
  return {
    /** Has done again what was done in the last while. @returns the entry from which on, if there is one. */
    rewind,

    /**
     * Takes up everything that the descriptors find. A descriptor that fails does not stop the others.
     *
     * @returns all counts of the descriptors, and items that `failed`.
     * @throws ApplicationFailure `ReconciliationFailed`, which names the descriptors; the next attempt does them again.
     */
    async reconcile(): Promise<Counts> {
      const names = kinds.flatMap(({ seen, done }) => [...(seen === undefined ? [] : [seen]), ...done]);
      const counts: Counts = Object.fromEntries([...names, 'failed'].map((name) => [name, 0]));
      const failed: string[] = [];
      const signal = Context.current().cancellationSignal;
      let isLoss = false;
      await withHeartbeats(
        async () => {
          for (const kind of kinds) {
            try {
              const isDone = await reconcile(kind, counts, { log, signal });
              isLoss ||= isDone && kind.isLoss === true;
            } catch (error) {
              signal.throwIfAborted();
              failed.push(`${kind.what}: ${reasonOf(error)}`);
            }
          }
        },
        () => counts,
      );
      if (isLoss) log.warn({ ...counts }, 'overdue work was taken up');
      else log.info({ ...counts }, 'work reconciled');
      if (failed.length > 0) throw ApplicationFailure.retryable(failed.join('; '), 'ReconciliationFailed');
      return counts;
    },
  };
}

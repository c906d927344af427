/**
 * Notifications that this process has begun and is not through with. Temporal hands a start back to the process that asked
 * for it, for as long as that is free; what comes on top goes through a task queue in which it waits, and the server
 * writes, reads and deletes it once more, which doubles what an intent costs it. So of a backlog no more is begun than
 * this process has in hand, and the rest waits in its stream, where it can be seen.
 */

/** Enough to keep the servers busy; more only wait for each other. Fewer than a worker has slots for workflow tasks. */
const MOST = 50;
/** What another process has taken over, or what waits for somebody, is not in hand any more, ms. */
const LONGEST_MS = 10_000;
/** Between two looks whether other processes have nothing to do, ms: while they have not, and while they have. */
const LOOK_INTERVAL_MS = 200;
const BUSY_LOOK_INTERVAL_MS = 1_000;
/** So many are begun for them after a look. */
const FOR_OTHERS = 20;

/** Where an intent may be begun: by this process, or by whoever takes it from the task queue. */
export type Place = 'here' | 'elsewhere';

export type InHand = ReturnType<typeof createInHand>;

/** @param most for tests. */
export function createInHand(most = MOST, longestMs = LONGEST_MS) {
  /** What is left to do of each. */
  const begun = new Map<string, { left: number; until: NodeJS.Timeout }>();
  const waiting = new Set<() => void>();
  let forOthers = 0;
  let lookAtMs = 0;

  function begin(notificationId: string): void {
    clearTimeout(begun.get(notificationId)?.until);
    const until = setTimeout(() => drop(notificationId), longestMs).unref();
    begun.set(notificationId, { left: 1, until });
  }

  function drop(notificationId: string): void {
    clearTimeout(begun.get(notificationId)?.until);
    begun.delete(notificationId);
    for (const wake of waiting) wake();
  }

  /** Resolves when one of them is done, the latest after the interval. */
  function change(stop: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        waiting.delete(wake);
        stop.removeEventListener('abort', wake);
        resolve();
      };
      const timer = setTimeout(wake, LOOK_INTERVAL_MS);
      waiting.add(wake);
      stop.addEventListener('abort', wake);
    });
  }

  return {
    /**
     * Waits until one more may be begun. Here, it is in hand from now on, with its acceptance to be done.
     *
     * @param areOthersFree whether other processes wait for work; asked while there is no place here.
     * @returns undefined when `stop` is aborted before.
     */
    async place(
      notificationId: string,
      stop: AbortSignal,
      areOthersFree: () => Promise<boolean>,
    ): Promise<Place | undefined> {
      while (!stop.aborted) {
        if (begun.size < most) {
          begin(notificationId);
          return 'here';
        }
        if (forOthers === 0 && performance.now() >= lookAtMs) {
          const areFree = await areOthersFree();
          lookAtMs = performance.now() + (areFree ? LOOK_INTERVAL_MS : BUSY_LOOK_INTERVAL_MS);
          if (areFree) forOthers = FOR_OTHERS;
        }
        if (forOthers > 0) {
          forOthers -= 1;
          return 'elsewhere';
        }
        await change(stop);
      }
      return undefined;
    },

    /** First attempts of its routes are to be done, too. */
    add(notificationId: string, routes: number): void {
      const one = begun.get(notificationId);
      if (one) one.left += routes;
    },

    /** Something of it is done, or left to somebody else. */
    done(notificationId: string): void {
      const one = begun.get(notificationId);
      if (!one) return;
      one.left -= 1;
      if (one.left <= 0) drop(notificationId);
    },
  };
}

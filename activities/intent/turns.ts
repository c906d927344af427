/** Turns at something that a process may do so many times concurrently, shared fairly by those who want them. */

/** Runs a task when it is the participant's turn. Rejects with what the task rejects with. */
export type TakeTurn = <T>(task: () => Promise<T>) => Promise<T>;

interface Participant {
  running: number;
  /** Tasks whose turn has not come, oldest first. */
  waiting: (() => void)[];
}

/**
 * @param most tasks that run concurrently, of all participants together.
 * @returns lets somebody take part. Participants get turns one after the other, and none gets one while it has as many
 * as are left for everybody: one alone uses half of them, two in the long run a third each. So a few whose tasks hang
 * leave turns to others, and once all are taken the next goes to somebody who has none.
 */
export function createTurns(most: number): () => TakeTurn {
  let running = 0;
  // Those who wait, in the order in which they get the next turns.
  const queue: Participant[] = [];

  function giveTurns(): void {
    for (let next = takeNext(); next; next = takeNext()) next();
  }

  function takeNext(): (() => void) | undefined {
    const left = most - running;
    const index = queue.findIndex((participant) => participant.running < left);
    if (index === -1) return undefined;
    const [participant] = queue.splice(index, 1) as [Participant];
    const begin = participant.waiting.shift();
    if (participant.waiting.length > 0) queue.push(participant);
    participant.running += 1;
    running += 1;
    return begin;
  }

  return () => {
    const self: Participant = { running: 0, waiting: [] };
    return async (task) => {
      await new Promise<void>((begin) => {
        if (self.waiting.push(begin) === 1) queue.push(self);
        giveTurns();
      });
      try {
        return await task();
      } finally {
        self.running -= 1;
        running -= 1;
        giveTurns();
      }
    };
  };
}

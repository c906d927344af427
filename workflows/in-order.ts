/**
 * One thing after the other. Work whose process died is done again when its time-out says so, and must not come after,
 * and undo, what was asked for in the meantime.
 */

/** @returns what runs work one at a time, in the order in which it is handed over; failed work holds nothing up. */
export function inOrder(): <Result>(work: () => Promise<Result>) => Promise<Result> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const outcome = last.then(work);
    last = outcome.catch(() => undefined);
    return outcome;
  };
}

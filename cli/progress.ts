/** Progress of a command that takes longer: a line on standard error every few seconds. */
import { onStop } from './invocation.ts';
import { report } from './output.ts';

const LINE_EVERY_MS = 5_000;

/**
 * Runs work and shows its progress until it ends.
 *
 * @param what a word for the things that are counted, e.g. `routes`.
 * @param work gets a function that says how many are done, and what else is worth knowing, e.g. how many failed.
 */
export function withProgress<T>(
  total: number,
  what: string,
  work: (update: (done: number, note?: string) => void) => Promise<T>,
): Promise<T> {
  let lastMs = Date.now();
  return work((done, note = '') => {
    if (Date.now() - lastMs < LINE_EVERY_MS) return;
    lastMs = Date.now();
    report(`${done}/${total} ${what}${note === '' ? '' : `, ${note}`}`);
  });
}

/** Runs work whose signal the first Ctrl-C aborts, so that the current step is finished; the second one ends the run immediately. */
export async function untilInterrupted<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const onFirst = () => {
    report('stopping after the current one (Ctrl-C again to stop immediately)');
    controller.abort();
  };
  return work(controller.signal).finally(onStop(onFirst, ['SIGINT']));
}

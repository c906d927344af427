/** Progress on standard error: a bar where a terminal shows it, a line every few seconds elsewhere. */
import { onStop, shell } from './invocation.ts';
import { report } from './output.ts';

const LINE_EVERY_MS = 5_000;
const BAR_EVERY_MS = 100;
const BAR_WIDTH = 24;
const CLEAR_LINE = '\r\u001b[K';

/**
 * Runs work and shows its progress until it ends.
 *
 * @param what a word for the things that are counted, e.g. `routes`.
 * @param work gets a function that shows how many are done, and what else is worth knowing, e.g. how many failed.
 */
export async function withProgress<T>(
  total: number,
  what: string,
  work: (update: (done: number, note?: string) => void) => Promise<T>,
): Promise<T> {
  const { stderr } = shell();
  const isTerminal = stderr.isTTY === true;
  let lastMs = isTerminal ? -Infinity : Date.now();
  const update = (done: number, note = ''): void => {
    if (Date.now() - lastMs < (isTerminal ? BAR_EVERY_MS : LINE_EVERY_MS)) return;
    lastMs = Date.now();
    const line = `${done}/${total} ${what}${note === '' ? '' : `, ${note}`}`;
    if (isTerminal) stderr.write(`${CLEAR_LINE}${barOf(done, total)} ${line}`);
    else report(line);
  };
  return work(update).finally(() => isTerminal && stderr.write(CLEAR_LINE));
}

function barOf(done: number, total: number): string {
  const full = Math.round(BAR_WIDTH * Math.min(1, done / Math.max(1, total)));
  return '█'.repeat(full) + '░'.repeat(BAR_WIDTH - full);
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

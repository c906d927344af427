/** Progress on standard error: a bar where a terminal shows it, a line every few seconds elsewhere. */
import { onStop, shell } from './invocation.ts';
import { report } from './output.ts';

const LINE_EVERY_MS = 5_000;
const BAR_EVERY_MS = 100;
const BAR_WIDTH = 24;
const CLEAR_LINE = '\r\u001b[K';

export interface Progress {
  /** @param note what else is worth knowing, e.g. how many failed. */
  update(done: number, note?: string): void;
  end(): void;
}

/** @param what a word for the things that are counted, e.g. `routes`. */
export function startProgress(total: number, what: string): Progress {
  const { stderr } = shell();
  const isTerminal = stderr.isTTY === true;
  const everyMs = isTerminal ? BAR_EVERY_MS : LINE_EVERY_MS;
  const lineOf = (done: number, note: string) => `${done}/${total} ${what}${note === '' ? '' : `, ${note}`}`;
  let lastMs = isTerminal ? -Infinity : Date.now();
  return {
    update(done, note = '') {
      if (Date.now() - lastMs < everyMs) return;
      lastMs = Date.now();
      if (isTerminal) stderr.write(`${CLEAR_LINE}${barOf(done, total)} ${lineOf(done, note)}`);
      else report(lineOf(done, note));
    },
    end: () => void (isTerminal && stderr.write(CLEAR_LINE)),
  };
}

function barOf(done: number, total: number): string {
  const full = Math.round(BAR_WIDTH * Math.min(1, done / Math.max(1, total)));
  return '█'.repeat(full) + '░'.repeat(BAR_WIDTH - full);
}

/** Runs work with a progress that ends with it. */
export async function withProgress<T>(
  total: number,
  what: string,
  work: (update: Progress['update']) => Promise<T>,
): Promise<T> {
  const { update, end } = startProgress(total, what);
  return work(update).finally(end);
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

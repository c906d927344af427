/** Progress on standard error: a bar where a terminal shows it, a line every few seconds elsewhere. */
import { SingleBar } from 'cli-progress';
import { onStop, shell } from './invocation.ts';
import { report } from './output.ts';

const LINE_EVERY_MS = 5_000;

export interface Progress {
  /** @param note what else is worth knowing, e.g. how many failed. */
  update(done: number, note?: string): void;
  end(): void;
}

/** @param what a word for the things that are counted, e.g. `routes`. */
export function startProgress(total: number, what: string): Progress {
  const { stderr } = shell();
  if (stderr.isTTY) {
    const bar = new SingleBar({
      stream: stderr,
      format: `{bar} {value}/{total} ${what} {note}`,
      barCompleteChar: '█',
      barIncompleteChar: '░',
      barsize: 24,
      clearOnComplete: true,
      hideCursor: true,
      // Ctrl-C is this program's: the bar must not take the signal.
      gracefulExit: false,
    });
    bar.start(total, 0, { note: '' });
    return { update: (done, note = '') => bar.update(done, { note }), end: () => bar.stop() };
  }
  let lastMs = Date.now();
  return {
    update(done, note = '') {
      if (Date.now() - lastMs < LINE_EVERY_MS) return;
      lastMs = Date.now();
      report(`${done}/${total} ${what}${note === '' ? '' : `, ${note}`}`);
    },
    end: () => undefined,
  };
}

/** Aborts with the first Ctrl-C, so that the current step is finished; the second one ends the run immediately. */
export function untilInterrupted(): { signal: AbortSignal; release: () => void } {
  const controller = new AbortController();
  const onFirst = () => {
    report('stopping after the current one (Ctrl-C again to stop immediately)');
    controller.abort();
  };
  return { signal: controller.signal, release: onStop(onFirst, ['SIGINT']) };
}

/** Replays of everything that matches: what would be replayed is shown and asked for, and Ctrl-C stops between two. */
import { createInterface } from 'node:readline/promises';
import { NotFoundError } from '../client/errors.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, UsageError } from './command.ts';
import { countOf, printJson, printLine, report } from './output.ts';
import { startProgress, untilInterrupted } from './progress.ts';

export interface BulkOptions extends GlobalOptions {
  limit?: number;
  dryRun?: boolean;
  yes?: boolean;
}

export interface Matching {
  /** A word for one of the things, e.g. `job`. */
  what: string;
  matching: number;
  /** How many of them are replayed. */
  total: number;
}

/** @returns the exit code of a command that replays nothing: a dry run, or a no to the question. */
export async function endBeforeReplay(
  { what, matching, total }: Matching,
  options: BulkOptions,
): Promise<ExitCode | undefined> {
  const all = countOf(total, what) + (total < matching ? ` of ${matching}, the oldest first` : '');
  if (options.dryRun) {
    report(`${all} would be replayed; nothing was done`);
    return EXIT.done;
  }
  if (await isConfirmed(all, options)) return undefined;
  report('nothing was done');
  return EXIT.nothing;
}

/** Replays and says how many; with `--dry-run`, says how many it would be. */
export async function replayMatching(
  found: Omit<Matching, 'total'>,
  options: BulkOptions,
  replay: (run: {
    limit: number;
    signal: AbortSignal;
    onReplayed: (done: number) => void;
  }) => Promise<{ replayed: unknown; line: string }>,
): Promise<ExitCode> {
  const { what, matching } = found;
  const total = Math.min(matching, options.limit ?? Infinity);
  if (options.json && options.dryRun) printJson({ matching, wouldReplay: total });
  if (matching === 0) throw new NotFoundError(`no ${what} that can be replayed matches`);
  const end = await endBeforeReplay({ ...found, total }, options);
  if (end !== undefined) return end;
  const { signal, release } = untilInterrupted();
  const progress = startProgress(total, `${what}s replayed`);
  let done = 0;
  const onReplayed = (count: number) => progress.update((done = count));
  try {
    const { replayed, line } = await replay({ limit: total, signal, onReplayed });
    if (options.json) printJson({ replayed });
    else printLine(line);
  } finally {
    progress.end();
    release();
  }
  if (!signal.aborted) return EXIT.done;
  report(`${done} of ${total} done; the same command goes on with the rest`);
  return EXIT.interrupted;
}

/**
 * Asks before a bulk replay, which reaches what its operator has not looked at.
 *
 * @throws UsageError where nobody can be asked.
 */
async function isConfirmed(what: string, { yes, json }: BulkOptions): Promise<boolean> {
  if (yes) return true;
  if (!process.stdin.isTTY || json) {
    throw new UsageError('a bulk replay asks first, which needs a terminal: add --yes, or --dry-run to look');
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    // Ctrl-C and Ctrl-D are a no.
    const answer = await terminal.question(`Replay ${what}? [y/N] `).catch(() => '\n');
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    terminal.close();
  }
}

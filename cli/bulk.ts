/** What is done to everything that matches: it is shown and asked for before. */
import { createInterface } from 'node:readline/promises';
import { Option } from 'commander';
import { DEFAULT_REPLAY_RATE, MAX_REPLAY_RATE } from '../client/bulk-replay.ts';
import { NotFoundError } from '../client/errors.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, UsageError } from './command.ts';
import { shell } from './invocation.ts';
import { parseCount, requestedByOption } from './options.ts';
import { capital, countOf, printJson, printLine, report } from './output.ts';
import { startProgress, untilInterrupted } from './progress.ts';

export interface BulkOptions extends GlobalOptions {
  limit?: number;
  dryRun?: boolean;
  yes?: boolean;
  requestedBy: string;
}

/** @param things in the plural, e.g. `jobs`. @param done what is done to them. */
export const bulkOptions = (things: string, done = 'replayed'): Option[] => [
  new Option('--limit <n>', `${things} at most, the oldest first`).argParser(parseCount(1, 1_000_000)),
  new Option('--dry-run', `show what would be ${done}, and do nothing`),
  new Option('--yes', 'do not ask'),
  requestedByOption(),
];

export const rateOption = (what = 'replays') =>
  new Option('--rate <n>', `${what} started per second`)
    .argParser(parseCount(1, MAX_REPLAY_RATE))
    .default(DEFAULT_REPLAY_RATE);

/** What is done to things, and what was done to them then. */
const DONE = {
  replay: 'replayed',
  cancel: 'cancelled',
  republish: 'published again',
  retry: 'started over',
} as const;
export type Verb = keyof typeof DONE;

export interface Matching {
  /** A word for one of the things, e.g. `job`. */
  what: string;
  matching: number;
  /** How many of them it is done to. */
  total: number;
}

/** @returns the exit code of a command that does nothing: a dry run, or a no to the question. */
export async function endBeforeBulk(
  { what, matching, total }: Matching,
  options: BulkOptions,
  verb: Verb = 'replay',
): Promise<ExitCode | undefined> {
  const all = countOf(total, what) + (total < matching ? ` of ${matching}, the oldest first` : '');
  if (options.dryRun) {
    report(`${all} would be ${DONE[verb]}; nothing was done`);
    return EXIT.done;
  }
  if (await isConfirmed(all, verb, options)) return undefined;
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
  const end = await endBeforeBulk({ ...found, total }, options);
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
  report(`${done} of ${total} done; the same command continues with the rest`);
  return EXIT.interrupted;
}

/**
 * Asks before what reaches things that the operator has not looked at.
 *
 * @throws UsageError without a terminal to ask on.
 */
function isConfirmed(what: string, verb: Verb, options: BulkOptions): Promise<boolean> {
  const question = `${capital(verb)} ${what}?`;
  return isMeant(question, `a bulk ${verb}`, 'add --yes, or --dry-run to look', options);
}

/**
 * Asks before something that cannot be taken back, or reaches further than the operator has looked.
 *
 * @throws UsageError with the advice, without a terminal to ask on.
 */
export async function isMeant(
  question: string,
  what: string,
  advice: string,
  { yes, json }: { yes?: boolean; json?: boolean },
): Promise<boolean> {
  if (yes) return true;
  const { stdin, stderr } = shell();
  if (!stdin.isTTY || json) {
    throw new UsageError(`${what} asks first, which needs a terminal: ${advice}`);
  }
  const terminal = createInterface({ input: stdin, output: stderr });
  try {
    // Ctrl-C and Ctrl-D are a no.
    const answer = await terminal.question(`${question} [y/N] `).catch(() => '\n');
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    terminal.close();
  }
}

/** What is done to everything that matches: it is shown and asked for before. */
import { createInterface } from 'node:readline/promises';
import { Option } from 'commander';
import { DEFAULT_REPLAY_RATE, MAX_REPLAY_RATE } from '../client/choices.ts';
import { NotFoundError } from '../client/errors.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, UsageError } from './command.ts';
import { shell } from './invocation.ts';
import { parseCount, requestedByOption } from './options.ts';
import type { Columns } from './output.ts';
import { capital, countOf, printItems, printJson, report } from './output.ts';

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

/** What a command is to do to many. */
export interface Matching<Group> {
  /** A word for one of the things, e.g. `job`. */
  what: string;
  verb: Verb;
  /** Text for an empty list. */
  nothing: string;
  matching: number;
  /** What they have in common, which is shown before. */
  groups?: Group[] | undefined;
  columns?: Columns<Group> | undefined;
}

/** How many it is done to. */
export const totalOf = (matching: number, { limit = Infinity }: BulkOptions): number =>
  Math.min(matching, limit);

/**
 * Shows what matches, and asks before what reaches things that the operator has not looked at.
 *
 * @returns the exit code of a command that does nothing: a dry run, or a no to the question.
 * @throws NotFoundError when nothing matches; UsageError without a terminal to ask on.
 */
export async function endBeforeBulk<Group extends object>(
  { what, verb, nothing, matching, groups, columns }: Matching<Group>,
  options: BulkOptions,
): Promise<ExitCode | undefined> {
  const { json, dryRun } = options;
  const total = totalOf(matching, options);
  if (json && dryRun) {
    printJson({ matching, [`would${capital(verb)}`]: total, ...(groups ? { groups } : {}) });
  }
  if (matching === 0) throw new NotFoundError(nothing);
  if (!json && groups && columns) printItems(groups, columns);
  const all = countOf(total, what) + (total < matching ? ` of ${matching}, the oldest first` : '');
  if (dryRun) {
    report(`${all} would be ${DONE[verb]}; nothing was done`);
    return EXIT.done;
  }
  const question = `${capital(verb)} ${all}?`;
  if (await isMeant(question, `a bulk ${verb}`, 'add --yes, or --dry-run to look', options)) return undefined;
  report('nothing was done');
  return EXIT.nothing;
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

/** How the CLI ends, in one place. */
import { SelfExplanatoryError } from '../api/errors.ts';
import { NotFoundError, NothingToDoError } from '../client/errors.ts';

export const EXIT = {
  done: 0,
  /** A dependency does not answer, or an operation did not succeed. */
  failed: 1,
  usage: 2,
  /** Not found, nothing matched, or nothing left to do. */
  nothing: 3,
  /** Ctrl-C, as shells count it. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export const EXIT_CODES_HELP = `Exit codes:
  0    done
  1    failed: a dependency does not answer, or the operation did not succeed
  2    wrong usage
  3    not found, nothing matched, or nothing left to do
  130  stopped with Ctrl-C`;

/** Something about the command line is wrong that can only be seen when it is carried out. */
export class UsageError extends SelfExplanatoryError {
  override name = 'UsageError';
}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof NotFoundError || error instanceof NothingToDoError) return EXIT.nothing;
  return error instanceof UsageError ? EXIT.usage : EXIT.failed;
}

import { ApplicationFailure } from '@temporalio/common';

/** Why something failed, for one line of a log or of the Web UI; several reasons for one error stand in a row. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join('; ');
  return error instanceof Error ? error.message || error.name : String(error);
}

/** @param type as workflows/failures.ts names it. */
export const isOfType = (error: unknown, type: string): error is ApplicationFailure =>
  error instanceof ApplicationFailure && error.type === type;

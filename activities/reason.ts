import { ApplicationFailure } from '@temporalio/common';

/** Why something failed, for one line of a log or of the Web UI; several reasons for one error stand in a row. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join('; ');
  return error instanceof Error ? oneLine(error.message) || error.name : oneLine(String(error));
}

/** What others say, as one line: PostgreSQL's text takes no NUL, and a log line no other control character. */
export const oneLine = (text: string): string => text.replaceAll(/\p{Cc}+/gu, ' ').trim();

/** @param type as workflows/failures.ts names it. */
export const isOfType = (error: unknown, type: string): error is ApplicationFailure =>
  error instanceof ApplicationFailure && error.type === type;

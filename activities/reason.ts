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

/**
 * @param error that a command failed with.
 * @returns whether it is the answer that this server is not the master any more, or not a usable one. The command has then
 * done nothing. After a switchover that cut no connection, the server would go on answering so for ever.
 */
export const isOfLostRole = (error: unknown): boolean =>
  error instanceof Error && /^(READONLY|MASTERDOWN|LOADING)\b/.test(error.message);

/**
 * @param error that a command failed with.
 * @returns whether no usable server has answered: the same command may succeed once one does. What the server answered
 * about the command itself, such as a full memory or a key of another type, is not that.
 */
export const isRedisAway = (error: unknown): boolean =>
  error instanceof Error && (error.name !== 'ReplyError' || isOfLostRole(error));

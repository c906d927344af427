/** What the activities share about Redis: whether it is away, or does not take what it is asked to. */

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

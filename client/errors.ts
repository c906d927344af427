/** What the operator client says when it cannot do what it was asked for. Messages are for operators, one line each. */
import type { z } from 'zod';
import { SelfExplanatoryError } from '../api/errors.ts';

/** There is no such notification, route, entry or workflow. */
export class NotFoundError extends SelfExplanatoryError {
  override name = 'NotFoundError';
}

/** It is there, and nothing is left to be done with it: it has ended, or was published. */
export class NothingToDoError extends SelfExplanatoryError {
  override name = 'NothingToDoError';
}

/** It was asked for and did not happen, or not in time. */
export class OperationFailedError extends SelfExplanatoryError {
  override name = 'OperationFailedError';
}

/**
 * Checks what a caller gave. @param what it is, before each problem.
 *
 * @throws OperationFailedError that names fields only: their values may be secrets.
 */
export function checkedBy<Schema extends z.ZodType>(
  schema: Schema,
  given: unknown,
  ...what: string[]
): z.output<Schema> {
  const { data, error } = schema.safeParse(given);
  if (!error) return data;
  const problems = error.issues.map(({ path, message }) =>
    [...what, ...(path.length > 0 ? [path.join('.')] : []), message].join(': '),
  );
  throw new OperationFailedError(problems.join('\n'));
}

/** The result is unknown: no worker answered in time, or the workflow does not run. It may be done later. */
export class UnansweredError extends OperationFailedError {
  override name = 'UnansweredError';
}

/** Whether it was refused: nothing was changed, and nothing will be. */
export const isRefusal = (error: unknown): boolean =>
  error instanceof NotFoundError ||
  error instanceof NothingToDoError ||
  (error instanceof OperationFailedError && !(error instanceof UnansweredError));

/** For a look that is repeated until something is there. @returns undefined when nothing is. @throws any other error. */
export function unlessMissing(error: unknown): undefined {
  if (error instanceof NotFoundError) return undefined;
  throw error;
}

/** Why a library's error happened, in one line: the innermost cause says more than its wrapping. */
export function causeOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(causeOf).join('; ');
  if (!(error instanceof Error)) return String(error);
  if (error.cause !== undefined) return causeOf(error.cause);
  // gRPC errors repeat their code before the details.
  const details = (error as { details?: unknown }).details;
  const text = typeof details === 'string' && details !== '' ? details : error.message || error.name;
  return text.split('\n')[0]!;
}

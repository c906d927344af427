/** What a person is told when something cannot go on. */

/** An error whose message says all there is to say, one line for each thing that is wrong: a stack would hide it. */
export class SelfExplanatoryError extends Error {
  override name = 'SelfExplanatoryError';
}

/** @returns the message of an error that explains itself, and the stack of any other. */
export function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error instanceof SelfExplanatoryError ? error.message : (error.stack ?? error.message);
}

/** What a person is told when something cannot go on, and where the runbook tells more. */

/** An error whose message says all there is to say, one line for each thing that is wrong: a stack would hide it. */
export class SelfExplanatoryError extends Error {
  override name = 'SelfExplanatoryError';
}

/** @returns the message of an error that explains itself, and the stack of any other. */
export function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error instanceof SelfExplanatoryError ? error.message : (error.stack ?? error.message);
}

/** Heading of docs/operate/runbook.md about dead letters, as links name it. */
export const RUNBOOK_OF_DEAD_LETTERS = 'notificationdeadletters';

/** The link to that section as a field, or no field where the operator has configured no address of the runbook. */
export const deadLetterRunbook = (runbookUrl: string | undefined): { runbook?: string } =>
  runbookUrl === undefined ? {} : { runbook: `${runbookUrl.replace(/#.*$/, '')}#${RUNBOOK_OF_DEAD_LETTERS}` };

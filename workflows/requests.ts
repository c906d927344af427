/** Checks of what operators send to workflows, shared by the handlers of their updates. */
import { ApplicationFailure } from '@temporalio/workflow';

const MAX_TEXT = 500;

/** Refuses an update before anything changes; the caller gets the message. */
export function refuse(message: string): never {
  throw ApplicationFailure.nonRetryable(message, 'InvalidRequest');
}

/** @throws ApplicationFailure `InvalidRequest` for a field that is given and is no text that can be stored. */
export function checkTexts(request: object, ...fields: string[]): void {
  for (const field of fields) {
    const value = (request as Record<string, unknown>)[field];
    if (value === undefined) continue;
    // NUL cannot be stored.
    if (typeof value !== 'string' || value.length > MAX_TEXT || value.includes('\0')) {
      refuse(`${field} must be a text of at most ${MAX_TEXT} characters`);
    }
  }
}

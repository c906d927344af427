/** The service's checks, made by the programs of producers. */
import type { Catalog } from '../api/intent/catalog.ts';
import type { Intent, IntentFailureCode } from '../api/intent/entry.ts';
import { fieldNamedIn, parseIntent } from '../api/intent/entry.ts';
import type { EntryFields } from '../api/text.ts';

/** What the service records about an intent; the last one only of a key that came before with other content. */
export type RefusalCode = IntentFailureCode | 'idempotency_conflict';

/** The intent would be refused; `code` is what the service would have recorded, `message` names the field. */
export class InvalidIntentError extends Error {
  override name = 'InvalidIntentError';
  readonly code: RefusalCode;
  /** Of the envelope, or `payload_json.<field>`; undefined when it is the entry as a whole. */
  readonly field: string | undefined;

  constructor(code: RefusalCode, message: string) {
    super(message);
    this.code = code;
    this.field = fieldNamedIn(message);
  }
}

/** Runs the service's checks on what stands in the stream. @throws InvalidIntentError for what it would refuse. */
export function intentIn(catalog: Catalog, entryId: string, fields: EntryFields): Intent {
  const parsed = parseIntent(catalog, entryId, fields);
  if (parsed.ok) return parsed.intent;
  const { failureCode, failureMessage } = parsed.malformed;
  throw new InvalidIntentError(failureCode as IntentFailureCode, failureMessage);
}

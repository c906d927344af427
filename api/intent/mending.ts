/** How an entry that was refused is made one that the service would take. Pure. */
import { isShownOnly } from '../text.ts';
import type { Catalog } from './catalog.ts';
import { ENVELOPE_FIELDS, entryFieldsOf, parseIntent } from './entry.ts';

export interface Correction {
  /** Fields of the envelope that get another value; an empty one leaves the field out. */
  set?: Record<string, string>;
  /** Publishes under a derived key, the same each time: the key of the entry belongs to another decision. */
  newKey?: boolean;
}

/** The fields to publish, or why they would be refused again. */
export type CorrectedEntry = { fields: Record<string, string> } | { reason: string };

/** @returns the first name that is no field of an intent, as a sentence; undefined when all are. */
export function unknownFieldOf({ set = {} }: Correction): string | undefined {
  const unknown = Object.keys(set).find((name) => !ENVELOPE_FIELDS.includes(name));
  return unknown && `${unknown} is no field of an intent; those are ${ENVELOPE_FIELDS.join(', ')}`;
}

/** @param rawFields of the entry, as they were kept. */
export function mendEntry(
  catalog: Catalog,
  entryId: string,
  rawFields: Record<string, string>,
  { set = {}, newKey }: Correction = {},
): CorrectedEntry {
  const given = Object.entries({ ...rawFields, ...set }).filter(
    ([name, value]) => ENVELOPE_FIELDS.includes(name) && value !== '',
  );
  const spoilt = given.find(([name, value]) => !Object.hasOwn(set, name) && isShownOnly(value));
  if (spoilt)
    return { reason: `${spoilt[0]} was not kept as it came: give it again with --set ${spoilt[0]}=…` };
  const fields = Object.fromEntries(given);
  if (newKey) fields['idempotency_key'] = `${fields['idempotency_key'] ?? ''}/republished/${entryId}`;
  const parsed = parseIntent(catalog, '0-0', entryFieldsOf(fields));
  if (parsed.ok) return { fields };
  const { failureCode, failureMessage } = parsed.malformed;
  return { reason: `the service would refuse it again: ${failureCode}, ${failureMessage}` };
}

/** Entries of a Redis Stream as the client returns them. */
import type { EntryFields } from '../api/text.ts';

export interface StreamEntry {
  id: string;
  fields: EntryFields;
}

/** Redis gives names and values in turn. */
export function fieldsOf(flat: Buffer[]): EntryFields {
  const fields: [Buffer, Buffer][] = [];
  for (let i = 0; i + 1 < flat.length; i += 2) fields.push([flat[i]!, flat[i + 1]!]);
  return fields;
}

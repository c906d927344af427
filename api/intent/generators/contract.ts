/** What the clients in Go and Python need to know besides the catalog. */
import type { PayloadField } from '../catalog.ts';
import {
  MAX_DELAY_MS,
  MAX_ENTRY_BYTES,
  MAX_KEY_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TIMESTAMP_MS,
  MAX_USER_ID_BYTES,
  MIN_TIMESTAMP_MS,
} from '../entry.ts';
import { MAX_JSON_DEPTH } from '../../json.ts';
import { MAX_ENTRY_FIELDS } from '../../text.ts';

/** What validation compares with, for the clients. */
export const LIMITS = {
  MAX_DELAY_MS,
  MAX_ENTRY_BYTES,
  MAX_ENTRY_FIELDS,
  MAX_JSON_DEPTH,
  MAX_KEY_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TIMESTAMP_MS,
  MAX_USER_ID_BYTES,
  MIN_TIMESTAMP_MS,
};

/** What a comment says of a field, without a full stop; empty when its type says all. */
export function noteOf(field: PayloadField): string {
  if (field.type === 'boolean') return '';
  if (field.type === 'integer') {
    if (field.format === 'unix-ms') return 'Unix milliseconds';
    return field.minimum === undefined ? '' : `from ${field.minimum}`;
  }
  if (field.enum !== undefined) return `one of ${field.enum.join(', ')}`;
  if (field.format === undefined) return '';
  return field.format === 'line' ? 'one line, not blank' : 'may have several lines, not blank';
}

/** What push events say, for people and tests: by the reader of the ledger, which shares no code with the encoder. */
import type { Catalog, NotificationType } from '../api/intent/catalog.ts';
import { typeIn } from '../api/intent/catalog.ts';
import { readTable } from '../faults/ledger/flatbuffers.ts';

const KINDS = { string: 'string', integer: 'long', boolean: 'boolean' } as const;

/** @returns the fields of a push event. @throws RangeError when the bytes are not such a table. */
export function readPushPayload(
  catalog: Catalog,
  type: NotificationType,
  bytes: Uint8Array,
): Record<string, unknown> {
  const { encoding, fields } = typeIn(catalog, type).push!;
  if (encoding === 'json') return JSON.parse(Buffer.from(bytes).toString()) as Record<string, unknown>;
  const layout = fields.map(({ name, type: kind }) => [name, KINDS[kind]] as const);
  const found = Object.entries(readTable(Buffer.from(bytes), layout));
  return Object.fromEntries(
    found.map(([name, value]) => [name, typeof value === 'bigint' ? Number(value) : value]),
  );
}

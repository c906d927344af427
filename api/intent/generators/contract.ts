/** What clients and schemas are generated from. */
import { isDeepStrictEqual } from 'node:util';
import type { AudienceKind, Catalog, NotificationType, PayloadField, Producer } from '../catalog.ts';
import {
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
  MAX_ENTRY_BYTES,
  MAX_ENTRY_FIELDS,
  MAX_JSON_DEPTH,
  MAX_KEY_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_TIMESTAMP_MS,
  MAX_USER_ID_BYTES,
  MIN_TIMESTAMP_MS,
};

/** One notification type, as a generator sees it. */
export interface TypeContract {
  type: NotificationType;
  /** What has happened, and who is told; one or two sentences. */
  summary: string;
  producer: Producer;
  audiences: AudienceKind[];
  /** In the order in which they are checked. */
  fields: { name: string; kind: FieldKind }[];
  /** A valid payload. */
  example: Readonly<Record<string, unknown>>;
}

/** Kinds of fields as the clients in Go and Python name them. */
export type FieldKind = 'text' | 'lines' | 'count' | 'time';

/** @throws TypeError for a field of a form that these clients do not check. */
function kindOf(type: string, name: string, field: PayloadField): FieldKind {
  const { description: _, ...form } = field;
  const known: [FieldKind, PayloadField][] = [
    ['text', { type: 'string', format: 'line' }],
    ['lines', { type: 'string', format: 'text' }],
    ['count', { type: 'integer', minimum: 0 }],
    ['time', { type: 'integer', format: 'unix-ms', minimum: 1 }],
  ];
  const found = known.find(([, one]) => isDeepStrictEqual(one, form));
  if (found === undefined) throw new TypeError(`${type}: ${name} has a form that Go and Python do not check`);
  return found[0];
}

/** @returns the types in the order of the catalog. @throws TypeError for a field that clients could not check. */
export const contractsOf = ({ types }: Catalog): TypeContract[] =>
  [...types.values()].map(({ type, summary, producer, audiences, fields, example }) => ({
    ...{ type, summary, producer, example },
    audiences: [...audiences],
    fields: fields.map(({ name, field }) => ({ name, kind: kindOf(type, name, field) })),
  }));

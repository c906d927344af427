/** What clients and schemas are generated from: the catalog, and the summaries and examples of the AsyncAPI document. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import type { AudienceKind, FieldKind, NotificationType, Producer } from '../catalog.ts';
import { CATALOG, NOTIFICATION_TYPES, audiencesOf, payloadFieldsOf } from '../catalog.ts';
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
  example: Record<string, string | number>;
}

interface Schema {
  $ref?: string;
  examples?: Record<string, string | number>[];
}
interface AsyncApi {
  components: { schemas: Record<string, Schema> };
  channels: {
    intents: {
      messages: Record<
        string,
        { summary: string; payload: { properties: { payload_json: { contentSchema: Schema } } } }
      >;
    };
  };
}

/** @returns the types in the order of the catalog. @throws TypeError where catalog and document disagree. */
export function readContracts(): TypeContract[] {
  const file = path.join(import.meta.dirname, '../intents-asyncapi.yaml');
  const document = parse(readFileSync(file, 'utf8')) as AsyncApi;
  return NOTIFICATION_TYPES.map((type) => {
    const message = document.channels.intents.messages[type];
    if (message === undefined) throw new TypeError(`intents-asyncapi.yaml has no message ${type}`);
    const { contentSchema } = message.payload.properties.payload_json;
    const name = contentSchema.$ref?.split('/').at(-1);
    const schema = name === undefined ? contentSchema : document.components.schemas[name];
    const [example] = schema?.examples ?? [];
    if (example === undefined) throw new TypeError(`intents-asyncapi.yaml has no example of ${type}`);
    return {
      type,
      summary: message.summary,
      producer: CATALOG[type].producer,
      audiences: audiencesOf(type),
      fields: payloadFieldsOf(type).map(([field, kind]) => ({ name: field, kind })),
      example,
    };
  });
}

/** `game.turn.ready` and `turn_number` as `GameTurnReady` and `TurnNumber`. */
export const pascalCase = (name: string): string =>
  name.replaceAll(/(?:^|[._])(\w)/g, (_, initial: string) => initial.toUpperCase());

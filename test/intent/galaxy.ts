/** The catalog of Galaxy as tests walk it, valid payloads of its types, and what reads a catalog, with this one. */
import type { z } from 'zod';
import type { Audience, RouteSlot } from '../../activities/intent/audience.ts';
import { materializeRoutes as materializeRoutesOf } from '../../activities/intent/audience.ts';
import type { AudienceKind, Channel, NotificationType } from '../../api/intent/catalog.ts';
import { adminTypesOf, typeIn } from '../../api/intent/catalog.ts';
import type { EntryFields, ParsedIntent } from '../../api/intent/entry.ts';
import { parseIntent as parseIntentOf } from '../../api/intent/entry.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { encodePushPayload as encodePushPayloadOf } from '../../api/intent/outbound-entries.ts';
import type { EntrySize } from '../../api/text.ts';
import { adminEmailVariablesOf } from '../../config/intent.ts';
import { readPushPayload as readPushPayloadOf } from '../../dev/push-payload.ts';

export const NOTIFICATION_TYPES = [...GALAXY.types.keys()];
export const ADMIN_NOTIFICATION_TYPES = adminTypesOf(GALAXY).map(({ type }) => type);
export const PUSH_NOTIFICATION_TYPES = NOTIFICATION_TYPES.filter((type) => specOf(type).push !== undefined);
export const ADMIN_EMAIL_VARIABLES = adminEmailVariablesOf(GALAXY);

export function specOf(type: NotificationType) {
  return typeIn(GALAXY, type);
}
export const audiencesOf = (type: NotificationType): readonly AudienceKind[] => specOf(type).audiences;
export const channelsOf = (type: NotificationType, audience: AudienceKind): readonly Channel[] =>
  specOf(type).channels[audience];
export const fieldsOf = (type: NotificationType): string[] => specOf(type).fields.map(({ name }) => name);
export const schemaOf = (type: NotificationType): z.ZodObject => specOf(type).schema;
/** Fields of the push event of a type. */
export const pushFieldNamesOf = (type: NotificationType): string[] =>
  specOf(type).push?.fields.map(({ name }) => name) ?? [];

export const parseIntent = (entryId: string, fields: EntryFields, size?: EntrySize): ParsedIntent =>
  parseIntentOf(GALAXY, entryId, fields, size);
export const encodePushPayload = (type: NotificationType, payload: Record<string, unknown>): Uint8Array =>
  encodePushPayloadOf(GALAXY, type, payload);
export const readPushPayload = (type: NotificationType, bytes: Uint8Array): Record<string, unknown> =>
  readPushPayloadOf(GALAXY, type, bytes);
export const materializeRoutes = (
  type: NotificationType,
  audience: Audience,
  budgets: Parameters<typeof materializeRoutesOf>[3],
): RouteSlot[] => materializeRoutesOf(GALAXY, type, audience, budgets);

const SAMPLE_VALUES: Record<string, string | number> = {
  attempted_at_ms: 1790000000000,
  eligible_until_ms: 1792592000000,
  final_turn_number: 120,
  game_id: 'game-42',
  game_name: 'Andromeda',
  turn_number: 54,
};

/** A valid payload of a type: numbers where the catalog wants numbers, the field's own name as text elsewhere. */
export function samplePayload(type: NotificationType): Record<string, string | number> {
  return Object.fromEntries(fieldsOf(type).map((field) => [field, SAMPLE_VALUES[field] ?? `a ${field}`]));
}

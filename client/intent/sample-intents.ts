/** An intent of each type with content that makes sense to a reader, for the demo and for a first try. */
import type { AudienceKind, NotificationType } from '../../api/intent/catalog.ts';
import { CATALOG } from '../../api/intent/catalog.ts';
import type { NotificationIntent } from '../notificationintent.ts';
import { constructorOf } from '../notificationintent.ts';

const DAY_MS = 86_400_000;

/** A value for every payload field that occurs in the catalog. */
const SAMPLE_FIELDS: Record<string, string | number> = {
  applicant_name: 'Noor Haddad',
  applicant_user_id: 'user-7',
  attempted_at_ms: Date.now(),
  eligible_until_ms: Date.now() + 30 * DAY_MS,
  error_code: 'manifest_unknown',
  error_message: 'manifest for galaxy/engine:2.4.1 not found',
  failure_reason: 'turn generator exited with code 137',
  final_turn_number: 120,
  game_id: 'game-42',
  game_name: 'Andromeda',
  image_ref: 'galaxy/engine:2.4.1',
  invitee_name: 'Noor Haddad',
  invitee_user_id: 'user-7',
  inviter_name: 'Ada Marlow',
  inviter_user_id: 'user-1',
  membership_user_id: 'user-9',
  membership_user_name: 'Tomas Lindqvist',
  observed_country: 'PT',
  race_name: 'Vireo',
  reason: 'the name is held by another player',
  review_reason: 'country changed within one hour',
  turn_number: 54,
  usual_connection_country: 'SE',
  user_email: 'player@example.com',
  user_id: 'user-3',
};

/** The payload fields of a type, in the order of the catalog. */
export function samplePayloadOf(type: NotificationType): Record<string, string | number> {
  return Object.fromEntries(
    Object.keys(CATALOG[type].payload).map((field) => [field, SAMPLE_FIELDS[field]!]),
  );
}

/** @returns an intent that the service accepts; users are two that the stand-in User Service knows. */
export function sampleIntentOf(
  type: NotificationType,
  audience: AudienceKind,
  idempotencyKey: string,
): NotificationIntent {
  // The catalog is walked as data here, so the payload's type is known to the constructor's checks only.
  const create = constructorOf(type) as (options: object) => NotificationIntent;
  return create({
    idempotencyKey,
    occurredAt: Date.now(),
    payload: samplePayloadOf(type),
    ...(audience === 'user' ? { recipientUserIds: ['user-1', 'user-4'] } : { audience }),
  });
}

/** An intent of each type with content that makes sense to a reader, for the demo and for a first try. */
import type { AudienceKind, Catalog, NotificationType } from '../../api/intent/catalog.ts';
import { typeIn } from '../../api/intent/catalog.ts';
import type { NotificationIntent } from '../constructors.ts';
import { newIntent } from '../constructors.ts';

/** Users that the stand-in User Service knows. */
export const SAMPLE_USERS = ['user-1', 'user-4'];

/** @returns an intent that the service accepts. */
export const sampleIntentOf = (
  catalog: Catalog,
  type: NotificationType,
  audience: AudienceKind,
  idempotencyKey: string,
): NotificationIntent =>
  newIntent(catalog, type, {
    idempotencyKey,
    occurredAt: Date.now(),
    payload: typeIn(catalog, type).example,
    ...(audience === 'user' ? { recipientUserIds: SAMPLE_USERS } : { audience }),
  });

/** An intent of each type with content that makes sense to a reader, for the demo and for a first try. */
import type { AudienceKind, Catalog, NotificationType } from '../../api/intent/catalog.ts';
import { typeIn } from '../../api/intent/catalog.ts';
import type { NotificationIntent } from '../constructors.ts';
import { newIntent } from '../constructors.ts';

/** @returns an intent that the service accepts; users are two that the stand-in User Service knows. */
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
    ...(audience === 'user' ? { recipientUserIds: ['user-1', 'user-4'] } : { audience }),
  });

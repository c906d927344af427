/** Whom an intent reaches: users as the User Service knows them, administrators as configured (seed "Enrichment"). */
import { ApplicationFailure, Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { AdminNotificationType } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { USER_SERVICE_UNAVAILABLE } from '../../workflows/failures.ts';
import type { Audience } from './materialization.ts';
import type { IntentMetrics } from './metrics.ts';
import type { Recipient, UserService } from './user-service.ts';
import { reasonOf } from '../reason.ts';

/** Lookups of one intent under way at once: enough to hide latency, too few to burden the User Service. */
const PARALLEL_LOOKUPS = 32;

interface AudienceSources {
  userService: UserService;
  metrics: IntentMetrics;
  /** Normalised, unique addresses by notification type. */
  adminEmails: Record<AdminNotificationType, readonly string[]>;
}

/** One of the recipients does not exist; then the intent is not accepted for the others either. */
interface UnknownUser {
  kind: 'unknown_user';
  userId: string;
}

/**
 * @returns resolves an intent's audience, inside an activity. It throws ApplicationFailure `UserServiceUnavailable`
 * (retried) when a lookup fails.
 */
export function createAudienceResolver({ userService, metrics, adminEmails }: AudienceSources) {
  return async (intent: Intent): Promise<Audience | UnknownUser> => {
    if (intent.audienceKind === 'admin_email') {
      const emails = adminEmails[intent.notificationType as AdminNotificationType];
      return { kind: 'admin_email', emails };
    }
    const context = Context.current();
    const limit = pLimit(PARALLEL_LOOKUPS);
    let unknownUser: string | undefined;
    const lookup = async (userId: string): Promise<Recipient | undefined> => {
      if (unknownUser !== undefined) return undefined;
      const recipient = await countedLookup(intent, userId);
      if (!recipient) unknownUser = userId;
      // A local activity has no heartbeat; it is too short to need one.
      if (!context.info.isLocal) context.heartbeat();
      return recipient;
    };
    const recipients = await limit.map(intent.recipientUserIds, lookup).catch((error: unknown) => {
      limit.clearQueue();
      throw ApplicationFailure.create({
        type: USER_SERVICE_UNAVAILABLE,
        message: reasonOf(error),
      });
    });
    if (unknownUser !== undefined) return { kind: 'unknown_user', userId: unknownUser };
    return { kind: 'user', recipients: recipients as Recipient[] };
  };

  async function countedLookup({ notificationType }: Intent, userId: string): Promise<Recipient | undefined> {
    const count = (result: 'found' | 'not_found' | 'failed') =>
      metrics.userEnrichment({ notification_type: notificationType, result });
    try {
      const recipient = await userService.findRecipient(userId);
      count(recipient ? 'found' : 'not_found');
      return recipient;
    } catch (error) {
      count('failed');
      throw error;
    }
  }
}

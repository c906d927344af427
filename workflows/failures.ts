/**
 * The few kinds of failure that cross from activities to workflows, each saying whether it is retried.
 * Names of publication failures are the classifications that rows, logs and metrics have.
 */

/** A publication failed; spends one attempt of the route's budget and is retried on the ladder. */
export const PUBLICATION_FAILURES = [
  'payload_encoding_failed',
  'gateway_stream_publish_failed',
  'mail_stream_publish_failed',
] as const;
export type PublicationFailure = (typeof PUBLICATION_FAILURES)[number];

/** The route's budget is spent. Never retried; ends the route's workflow, whose Failed state is the work list. */
export const ROUTE_DEAD_LETTERED = 'RouteDeadLettered';

/** The User Service did not give a usable answer. Retried without end. */
export const USER_SERVICE_UNAVAILABLE = 'UserServiceUnavailable';

/** An intent cannot be decided yet, because of others. Retried without end. */
export const ACCEPTANCE_DEFERRED = 'AcceptanceDeferred';

/** PostgreSQL does not answer, or not now. Retried without end; spends no budget. */
export const POSTGRES_UNAVAILABLE = 'PostgresUnavailable';

/**
 * PostgreSQL answers, and the installation is not in order: no right, no table, read-only, a full disk. Retried without
 * end; uses up no attempts. An operator must fix it.
 */
export const POSTGRES_UNUSABLE = 'PostgresUnusable';

/**
 * An attempt went on after Temporal had given it up, as a process does that stood still, and was refused its next statement.
 * Retried; spends no budget.
 */
export const ATTEMPT_LATE = 'AttemptLate';

/** Why a statement did not run that may run later as it is. */
export const POSTGRES_AWAY = [POSTGRES_UNAVAILABLE, POSTGRES_UNUSABLE, ATTEMPT_LATE] as const;

/**
 * PostgreSQL does not take these values, and would say the same again. What they belong to is set aside where that is
 * possible: an entry becomes malformed, a route's workflow and a transaction fail for good.
 */
export const POSTGRES_REFUSED = 'PostgresRefused';

/** An attempt to publish could not be made or not be recorded. Retried without end; spends no budget. */
export const ROUTE_DEFERRED = 'RouteDeferred';

/** A route is still on its way. The workflow that waits for its end looks again. */
export const ROUTE_OPEN = 'RouteOpen';

/** The stream reader stopped in good order so that another worker takes over. Retried immediately. */
export const BRIDGE_HANDOVER = 'BridgeHandover';

/** Another attempt at reading has begun, or PostgreSQL has fallen back: reading begins again from the saved offset. */
export const BRIDGE_REPLACED = 'BridgeReplaced';

/** FCM or the network refused a push for now. Spends one attempt of the send's budget and is retried. */
export const MOBILE_SEND_FAILED = 'MobileSendFailed';

/** FCM's quota is spent and all sends wait. Retried when they may go on; spends nothing. */
export const MOBILE_SEND_BRAKED = 'MobileSendBraked';

/** Redis does not say whether FCM has a push already, or another attempt is at it. Retried without end; spends nothing. */
export const MOBILE_SEND_DEFERRED = 'MobileSendDeferred';

/** Devices are left that a job did not reach. Never retried; its Failed state is the work list for replays. */
export const MOBILE_PUSH_FAILED = 'MobilePushFailed';

/** The agent was closed, or closed and opened again, while work on its behalf was under way. Never retried. */
export const SUBSCRIPTION_CLOSED = 'SubscriptionClosed';

/** Work on subscriptions ended because its process stops. Taken up again from the rows. */
export const SUBSCRIPTION_INTERRUPTED = 'SubscriptionInterrupted';

/** A request of an operator about subscriptions cannot be met. Never retried. */
export const SUBSCRIPTION_REFUSED = 'SubscriptionRefused';

export function isPublicationFailure(type: string | null | undefined): type is PublicationFailure {
  return PUBLICATION_FAILURES.some((known) => known === type);
}

/**
 * The operator client: what an operator asks and does, as typed functions. The CLI is made of it, and other programs
 * may use it as well; they bring their own connections, or have them opened by connect.ts.
 *
 * ```ts
 * const operator = createOperator({ temporal, db, redis, namespace, intentsStream });
 * const { items } = await operator.deadLetters.list({ channel: 'email' });
 * ```
 *
 * Reads are bounded, newest first. Times are `Date`s. Errors are NotFoundError, NothingToDoError and
 * OperationFailedError; what a connection throws passes through.
 */
import type { Catalog } from '../api/intent/catalog.ts';
import { callbackOperations } from './account-callback/callbacks.ts';
import { actionOperations } from './actions.ts';
import { forgetOperations } from './forget.ts';
import { GALAXY } from './generated/galaxy.ts';
import { bridgeOperations, channelOperations, producerOperations } from './intent/holds.ts';
import { operationOperations } from './operations.ts';
import { notificationOperations } from './intent/notifications.ts';
import { deadLetterOperations, malformedOperations, waitingOperations } from './intent/intents.ts';
import { mobileOperations } from './mobile-push/jobs.ts';
import { keyOperations } from './keys.ts';
import { recoveryOperations } from './recovery.ts';
import type { OperatorResources, View } from './resources.ts';
import { views } from './resources.ts';
import { subscriptionOperations } from './subscription/subscriptions.ts';
import { tokenOperations } from './subscription/tokens.ts';
import { symbolOperations } from './symbol-config/symbols.ts';
import type { Top } from './top.ts';
import { top } from './top.ts';
import type { WhyOptions } from './why.ts';
import { why } from './why.ts';

export { NotFoundError, NothingToDoError, OperationFailedError } from './errors.ts';
export type { OperatorResources } from './resources.ts';

export type Operator = ReturnType<typeof createOperator>;

export function createOperator(given: Omit<OperatorResources, 'catalog'> & { catalog?: Catalog }) {
  const resources = { catalog: GALAXY, ...given };
  return {
    /** What comes in, goes out, waits and died, of each kind of work. Bounded however much there is; never throws. */
    top: (): Promise<Top> => top(resources),
    /** Lists in the Web UI, as queries and links. Asks no server. */
    views: (): View[] => views(resources),
    /**
     * What a recipient got, and what not and why.
     *
     * @param recipient a user's id, or the address of an administrator.
     */
    why: (recipient: string, options?: WhyOptions) => why(resources, recipient, options),
    /** What is kept of a user, and forgetting it. */
    users: forgetOperations(resources),
    /** Who asked for what. */
    actions: actionOperations(resources),
    intents: waitingOperations(resources),
    keys: keyOperations(resources),
    recovery: recoveryOperations(resources),
    notifications: notificationOperations(resources),
    deadLetters: deadLetterOperations(resources),
    operations: operationOperations(resources),
    channels: channelOperations(resources),
    producers: producerOperations(resources),
    bridge: bridgeOperations(resources),
    malformed: malformedOperations(resources),
    mobile: mobileOperations(resources),
    symbols: symbolOperations(resources),
    callbacks: callbackOperations(resources),
    subscriptions: subscriptionOperations(resources),
    tokens: tokenOperations(resources),
  };
}

/** What waits for routers, each in a workflow of its own, however long its router takes. */
import { ApplicationFailure, proxyActivities } from '@temporalio/workflow';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import { SUBSCRIPTION_REFUSED } from '../failures.ts';
import { SUBSCRIPTION_BATCH } from '../policies.ts';
import type { RouterChange, RouterStates } from './contract.ts';
import { checkChange } from './requests.ts';

const routers = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);

/** @throws ApplicationFailure the request is invalid, or the router did not answer under the fingerprint. */
export async function subscriptionChange(
  agentId: string,
  change: RouterChange,
): Promise<RouterStates | void> {
  checkChange(agentId, change);
  if ('look' in change) return routers.lookAtRouters(agentId);
  const refusal = await routers.trustRouter(agentId, change.trust.server);
  if (typeof refusal === 'string') fail(`the router did not answer under this fingerprint: ${refusal}`);
}

/** Ends an update or a change, but not the supervisor. */
export function fail(message: string): never {
  throw ApplicationFailure.nonRetryable(message, SUBSCRIPTION_REFUSED);
}

/**
 * Serves the operations on an agent's token, one at a time in the order in which they came. Rows hold the token. This
 * workflow makes sure that the consequences of an operation follow, even when the process that carried it out has
 * ended. It ends when there has been nothing to do for a while.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> REGISTERED: register
 *   REGISTERED --> ACTIVE: verify
 *   ACTIVE --> ACTIVE: register, check; subscriptions follow the mode
 *   ACTIVE --> REGISTERED: register of another device
 *   ACTIVE --> INVALID: check, register
 *   INVALID --> REGISTERED: register
 *   ACTIVE --> [*]: delete
 * ```
 */
import {
  allHandlersFinished,
  condition,
  defineUpdate,
  isCancellation,
  log,
  proxyActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { SubscriptionTokenActivities } from '../../activities/subscription/token.ts';
import { inOrder, isHistoryLong } from '../long-lived.ts';
import { DATABASE, SUBSCRIPTION_BATCH, TOKEN_CRON } from '../policies.ts';
import type { TokenResult, TokenRequest, TokenUpdate } from './contract.ts';
import { checkRequestId } from './requests.ts';

const database = proxyActivities<SubscriptionTokenActivities>(DATABASE);
const router = proxyActivities<SubscriptionTokenActivities>(SUBSCRIPTION_BATCH);
const background = proxyActivities<SubscriptionTokenActivities>(TOKEN_CRON);

/** The activity for each update. */
const OPERATIONS: Record<TokenUpdate, (agentId: string, requestId: string) => Promise<TokenResult>> = {
  register: router.registerToken,
  verify: router.verifyToken,
  check: router.checkToken,
  delete: router.deleteToken,
};

/** Another operation that comes within this time needs no new run. */
const LINGER_MS = 60_000;

export async function subscriptionToken(agentId: string): Promise<void> {
  let served = 0;
  const oneAtATime = inOrder();
  let inBackground = 0;

  for (const update of Object.keys(OPERATIONS) as TokenUpdate[]) {
    setHandler(
      defineUpdate<TokenResult, [TokenRequest]>(update),
      ({ requestId }) => oneAtATime(() => serve(update, requestId)),
      {
        validator: checkRequestId,
        description: `Token: ${update}. {requestId} of subscriptions.requests`,
      },
    );
  }

  let seen: number;
  do {
    seen = served;
    await condition(() => served !== seen || isHistoryLong(), LINGER_MS);
    await condition(() => allHandlersFinished() && inBackground === 0);
  } while (served !== seen && !isHistoryLong());

  /** Sets the cron interval of an active token in the background: no caller waits for that. */
  function setCron(): void {
    inBackground += 1;
    void background
      .setTokenCron(agentId)
      .catch((error: unknown) => {
        if (!isCancellation(error)) log.warn('the cron interval of the token could not be set');
      })
      .finally(() => (inBackground -= 1));
  }

  async function serve(update: TokenUpdate, requestId: string): Promise<TokenResult> {
    try {
      setCurrentDetails(`${update} under way`);
      const outcome = await OPERATIONS[update](agentId, requestId);
      if (outcome.ok && update !== 'check') {
        await database.followToken(agentId);
        if (outcome.status === 'ACTIVE') setCron();
      }
      await database.removeTokenRequest(requestId);
      setCurrentDetails(`${update}: ${describe(outcome)}`);
      return outcome;
    } finally {
      served += 1;
    }
  }
}

function describe(outcome: TokenResult): string {
  if (!outcome.ok) return `${outcome.error.source} ${outcome.error.code}`;
  return outcome.status ?? 'done';
}

/**
 * The workflow that serves the operations on an agent's token one at a time, and what its callers agree on. Pure, so
 * that clients and the workflow sandbox can both import it.
 *
 * Device tokens and codes enter no history: a caller writes them, sealed, into `subscriptions.token_requests`
 * (api/subscription/token-request.ts) and names the row.
 */
import { supervisorWorkflowId } from './contract.ts';

export const TOKEN_WORKFLOW = 'subscriptionToken';

export const tokenWorkflowId = (agentId: string): string => `${supervisorWorkflowId(agentId)}/token`;

/**
 * Updates, each with a `TokenRequest` of the same kind as argument and a `TokenOutcome` as result; to be sent by
 * update-with-start, since the workflow ends when there is nothing left to do.
 *
 * `register` makes the token known to a notification router, as far as it is not, or takes it over to another device;
 * it also sets the mode. `verify` ends the registration with the code that was pushed to the device. `check` asks the
 * router how the token stands. `delete` forgets it, and has the router do the same.
 */
export const TOKEN_UPDATES = {
  register: 'register',
  verify: 'verify',
  check: 'check',
  delete: 'delete',
} as const;
export type TokenUpdate = keyof typeof TOKEN_UPDATES;

export interface TokenRequest {
  /** A UUID, the key of the row. */
  requestId: string;
}

/** `PERIODIC`: the device is told to look for messages now and then. `INSTANT`: there is a push for each. */
export type TokenMode = 'PERIODIC' | 'INSTANT';

export interface TokenError {
  /** `NTF` is an answer of the router, `BROKER` concerns the way to it, `AGENT` and `STORE` this side. */
  source: string;
  /** `AUTH`, `TIMEOUT`, `PROHIBITED` … */
  code: string;
  detail?: string;
}

export type TokenOutcome =
  /** The token's status as it is now known; after `delete` there is none. */
  { ok: true; status?: string } | { ok: false; error: TokenError };

/** Which rows of subscriptions are deleted, and when. */
import type { Expiring, Kept } from '../retention.ts';

/** How long relayed events and unfinished requests are kept, ms. */
const EVENTS_KEPT_MS = 7 * 24 * 3_600_000;
const REQUESTS_KEPT_MS = 24 * 3_600_000;

/** After so long the deletion of a token is given up, whatever its state, ms. */
const TOKEN_DELETIONS_KEPT_MS = 21 * 24 * 3_600_000;

export const subscriptionTables = (): Kept[] => [
  { ...TOKEN_DELETIONS, keepMs: TOKEN_DELETIONS_KEPT_MS },
  { ...EVENTS, keepMs: EVENTS_KEPT_MS },
  { ...IMPORTS, keepMs: REQUESTS_KEPT_MS },
  { ...REQUESTS, keepMs: REQUESTS_KEPT_MS },
];

const TOKEN_DELETIONS: Expiring = {
  name: 'token_deletions',
  table: 'subscriptions.ntf_tokens_to_delete',
  since: 'created_at',
};
const EVENTS: Expiring = {
  name: 'subscription_events',
  table: 'subscriptions.events',
  since: 'relayed_at',
  condition: 'relayed_at IS NOT NULL',
};
const IMPORTS: Expiring = {
  name: 'queue_imports',
  table: 'subscriptions.queue_imports',
  since: 'created_at',
};
const REQUESTS: Expiring = {
  name: 'token_requests',
  table: 'subscriptions.token_requests',
  since: 'created_at',
};

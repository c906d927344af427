/** Which rows of subscriptions are deleted, and when. */
import type { Kept } from '../retention.ts';

const DAY_MS = 24 * 3_600_000;
/** After so long the deletion of a token or connection on its router is given up, whatever its state. */
const DELETIONS_KEPT_MS = 21 * DAY_MS;

export const subscriptionTables = (): Kept[] => [
  {
    name: 'token_deletions',
    table: 'subscriptions.ntf_tokens_to_delete',
    since: 'created_at',
    keepMs: DELETIONS_KEPT_MS,
  },
  {
    name: 'deleted_connections',
    table: 'subscriptions.connections',
    since: 'updated_at',
    condition: 'is_deleted',
    keepMs: DELETIONS_KEPT_MS,
  },
  {
    name: 'subscription_events',
    table: 'subscriptions.events',
    since: 'relayed_at',
    condition: 'relayed_at IS NOT NULL',
    keepMs: 7 * DAY_MS,
  },
  // Requests that were not finished.
  { name: 'subscription_requests', table: 'subscriptions.requests', since: 'created_at', keepMs: DAY_MS },
];

/**
 * Subscriptions that are checked now, not in up to three days: only their routers know how they stand. After the
 * verification of a token its router may have none of them any more, since it may know the token for the first time. A
 * PostgreSQL that fell back to an earlier state says of subscriptions what was true then.
 */
import type { Pool } from 'pg';
import { query } from '../postgres.ts';

const PAGE_SIZE = 1_000;

/**
 * Makes the checks of subscriptions due. A worker that has asked a router before does not put the check off again.
 *
 * @param agentId whose; default: of all agents.
 * @returns how many.
 */
export async function makeChecksDue(db: Pool, agentId?: string): Promise<number> {
  let made = 0;
  for (let after = [agentId ?? '', '']; ;) {
    const [page] = await query<Page>(db, MAKE_CHECKS_DUE, [...after, agentId ?? null, PAGE_SIZE]);
    made += page!.made;
    if (page!.last === null || (agentId !== undefined && page!.last[0] !== agentId)) return made;
    after = page!.last;
  }
}

interface Page {
  made: number;
  /** Agent and connection; null: there were none. */
  last: [string, string] | null;
}

/**
 * A subscription that is being created is created again. $1 and $2 agent and connection of the last row of the page before,
 * $3 the only agent if not null, $4 rows at most.
 */
const MAKE_CHECKS_DUE = {
  name: 'make_subscription_checks_due',
  text: `
    WITH page AS MATERIALIZED (
      SELECT agent_id, conn_id
        FROM subscriptions.ntf_subscriptions
       WHERE (agent_id, conn_id) > ($1, $2)
       ORDER BY agent_id, conn_id
       LIMIT $4
    ), made AS (
      UPDATE subscriptions.ntf_subscriptions AS record
         SET action_ts = clock_timestamp(), generation = generation + 1
        FROM page
       WHERE (record.agent_id, record.conn_id) = (page.agent_id, page.conn_id)
         AND page.agent_id = coalesce($3, page.agent_id)
         AND record.ntf_action IN ('N', 'C') AND record.action_ts IS NOT NULL
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM made) AS made,
           (SELECT ARRAY[agent_id, conn_id] FROM page ORDER BY agent_id DESC, conn_id DESC LIMIT 1) AS last`,
};

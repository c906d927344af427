/**
 * A PostgreSQL that fell back to an earlier state says of subscriptions what was true then. Only their routers know
 * better, and the next check may be days away; so every one is checked at once.
 */
import type { Pool } from 'pg';
import { query } from '../postgres.ts';

const PAGE_SIZE = 1_000;

/** @returns how many subscriptions are due for their check now that were not. */
export async function makeChecksDue(db: Pool): Promise<number> {
  let made = 0;
  for (let after = ['', '']; ;) {
    const [page] = await query<Page>(db, MAKE_CHECKS_DUE, [...after, PAGE_SIZE]);
    made += page!.made;
    if (page!.last === null) return made;
    after = page!.last;
  }
}

interface Page {
  made: number;
  /** Agent and connection; null: there were none. */
  last: [string, string] | null;
}

/** What is no check is due as it is. $1 and $2 agent and connection of the last row of the page before, $3 rows at most. */
const MAKE_CHECKS_DUE = {
  name: 'make_subscription_checks_due',
  text: `
    WITH page AS MATERIALIZED (
      SELECT agent_id, conn_id
        FROM subscriptions.ntf_subscriptions
       WHERE (agent_id, conn_id) > ($1, $2)
       ORDER BY agent_id, conn_id
       LIMIT $3
    ), made AS (
      UPDATE subscriptions.ntf_subscriptions AS record
         SET action_ts = clock_timestamp()
        FROM page
       WHERE (record.agent_id, record.conn_id) = (page.agent_id, page.conn_id)
         AND record.ntf_action = 'C' AND record.action_ts > clock_timestamp()
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM made) AS made,
           (SELECT ARRAY[agent_id, conn_id] FROM page ORDER BY agent_id DESC, conn_id DESC LIMIT 1) AS last`,
};

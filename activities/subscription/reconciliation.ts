/**
 * What the reconciliation does for subscriptions. A process may end after it wrote rows and before it woke a worker for
 * them, so rows that are due wake their workers. Commands can be lost with the process that was to send them, and those
 * that the gate held back are not sent again; so records are looked for in either direction: those that are missing, and
 * those that are not wanted any more. The supervisor brings in order what differs, by the rows as they are then.
 */
import type { KeyBox } from '../../api/key-box.ts';
import { openIfPossible } from '../../api/key-box.ts';
import {
  deletionKeyContext,
  isGateOpen,
  notifierKeyContext,
  queueOf,
  recipientKeyContext,
} from '../../api/subscription/rows.ts';
import type { Counts } from '../../workflows/recovery-contract.ts';
import type { WorkerKey } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import type { Statement } from '../postgres.ts';
import type { Reconciled } from '../reconciliation.ts';
import type { Kept } from '../retention.ts';
import { serversWithWork } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import type { SubscriptionCommands, WorkerRow } from './commands.ts';
import { kickAll, replaceStuck, workersIn } from './commands.ts';
import type { TokenRow } from './token-rows.ts';
import { loadToken } from './token-rows.ts';

/** Rows that are read with their keys together. */
const PAGE = MAX_CONNECTIONS;
/** Connections that one statement looks at. */
const LOOKED_AT = 2_000;
/** Connections that one run names; of more, the supervisor looks at all, and leaves those alone that are in order. */
const MOST_NAMED = 20 * MAX_CONNECTIONS;

/**
 * Whether an agent with this token wants its subscriptions: `kept`, `ended`, or neither while the token cannot be used,
 * as while another device takes it over.
 */
export function keepingOf(token: TokenRow | undefined): 'kept' | 'ended' | 'as they are' {
  if (token?.mode !== 'INSTANT') return 'ended';
  return isGateOpen(token) ? 'kept' : 'as they are';
}

type ReconciliationResources = SubscriptionResources & { commands: SubscriptionCommands };

export function createDueWork(resources: ReconciliationResources) {
  const { db, subscription: settings } = resources;
  return {
    /** Wakes a worker for everything of an agent that is due. @returns how many were woken. */
    kickDue: async (agentId: string, nowMs: number): Promise<number> =>
      kickAll(resources, await dueOf(agentId, nowMs)),

    /** As `kickDue`, and restarts workers that cannot go on. */
    async wakeWorkers(agentId: string): Promise<Counts> {
      const due = await dueOf(agentId, Date.now());
      return { kicks: await kickAll(resources, due), replaced: await replaceStuck(resources, due) };
    },
  };

  /** Includes records that are due before the next run but one: their workers then wait for the exact time. */
  async function dueOf(agentId: string, nowMs: number): Promise<WorkerKey[]> {
    const values = [nowMs + 2 * settings.reconciliationMs, agentId];
    return workersIn(agentId, await query<WorkerRow>(db, LIST_DUE, values));
  }
}

export function subscriptionReconciliation(resources: ReconciliationResources): Reconciled[] {
  const { db, log, keyBox, commands } = resources;
  const { wakeWorkers } = createDueWork(resources);

  return [
    ofAgents('unreadable row', ['recovered'], recoverUnreadable),
    ofAgents('due worker', ['kicks', 'replaced'], wakeWorkers),
    ofAgents('subscription that differs', ['differing'], bringInOrder),
  ];

  /** Everything of one agent is one item: what fails for it does not stop the other agents, nor what comes next. */
  function ofAgents(
    what: string,
    done: readonly string[],
    work: (agentId: string) => Promise<Counts>,
  ): Reconciled<{ agent_id: string }> {
    return {
      ...{ what, done },
      page: (after, limit) => query(db, LIST_AGENTS, [after?.agent_id ?? '', limit]),
      idOf: ({ agent_id }) => agent_id,
      start: ([agent]) => work(agent!.agent_id),
    };
  }

  /**
   * Has subscriptions made for connections that want one and have no record, and those ended that are not wanted any
   * more: of connections that are switched off or deleted, and all when the agent wants none. Their commands were lost. One
   * that was given up is left alone until something about it changes, and follows that then, in either direction.
   */
  async function bringInOrder(agentId: string): Promise<Counts> {
    const keeping = keepingOf(await loadToken(db, agentId));
    const differing: string[] = [];
    for (let next: string | null = ''; next !== null && differing.length <= MOST_NAMED;) {
      const values: unknown[] = [agentId, keeping === 'kept', keeping === 'ended', next, LOOKED_AT];
      const [page] = await query<PageRow>(db, LIST_DIFFERING, values);
      differing.push(...page!.differing);
      ({ next } = page!);
    }
    await commands.reconcile(agentId, differing.length > MOST_NAMED ? undefined : differing);
    return { differing: differing.length };
  }

  /**
   * Lets work go on that stopped because a sealed key did not open, where it opens by now: after a start without a key
   * the next one may have it again.
   */
  async function recoverUnreadable(agentId: string): Promise<Counts> {
    const recovered =
      (await recover<RecordRow>(FAILED_RECORDS, agentId, (row) => doesOpen(keyBox, agentId, row))) +
      (await recover<DeletionRow>(
        FAILED_TOKEN_DELETIONS,
        agentId,
        ({ private_key: sealed, token_id: tokenId }) =>
          openIfPossible(keyBox, sealed, deletionKeyContext(agentId, tokenId)) !== undefined,
      ));
    if (recovered > 0) log.info({ agent_id: agentId, rows: recovered }, 'rows can be read again');
    return { recovered };
  }

  async function recover<Row extends { key: string }>(
    { list, clear }: Record<'list' | 'clear', Statement>,
    agentId: string,
    isReadable: (row: Row) => boolean,
  ): Promise<number> {
    let recovered = 0;
    for (let after = ''; ;) {
      const rows = await query<Row>(db, list, [agentId, after, PAGE]);
      const keys = rows.filter(isReadable).map(({ key }) => key);
      if (keys.length > 0) await query(db, clear, [agentId, keys]);
      recovered += keys.length;
      if (rows.length < PAGE) return recovered;
      after = rows.at(-1)!.key;
    }
  }
}

/** Whether the keys of the queue of a record open. */
function doesOpen(keyBox: KeyBox, agentId: string, row: RecordRow): boolean {
  return (
    openIfPossible(keyBox, row.rcv_private_key, recipientKeyContext(agentId, row.rcv_id)) !== undefined &&
    (row.ntf_private_key === null ||
      openIfPossible(keyBox, row.ntf_private_key, notifierKeyContext(agentId, row.ntf_id!)) !== undefined)
  );
}

interface PageRow {
  differing: string[];
  /** The last connection of a full page. */
  next: string | null;
}

interface RecordRow {
  key: string;
  rcv_id: string;
  rcv_private_key: Buffer;
  ntf_id: string | null;
  ntf_private_key: Buffer | null;
}

interface DeletionRow {
  key: string;
  token_id: string;
  private_key: Buffer;
}

/**
 * A deleted connection without a record only waits to go. A record that is being ended is not listed, nor one that was given
 * up since its connection or token last changed. $1 agent, $2 whether subscriptions are kept, $3 whether none is wanted, $4 the
 * last connection of the page before, $5 connections at most.
 */
const LIST_DIFFERING = {
  name: 'list_differing_subscriptions',
  text: `
    WITH page AS MATERIALIZED (
      SELECT conn_id, is_deleted, NOT is_deleted AND enable_ntfs IS NOT FALSE AS is_wanted, updated_at
        FROM subscriptions.connections
       WHERE agent_id = $1 AND conn_id > $4
       ORDER BY conn_id
       LIMIT $5
    ), differing AS (
      SELECT page.conn_id
        FROM page
        LEFT JOIN subscriptions.ntf_subscriptions AS record
               ON record.agent_id = $1 AND record.conn_id = page.conn_id
       WHERE CASE WHEN record.conn_id IS NULL
                  THEN is_deleted OR $2 AND is_wanted
                       AND EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                                    WHERE queue.agent_id = $1 AND queue.conn_id = page.conn_id)
                  ELSE ($3 OR NOT is_wanted OR $2 AND record.action_ts IS NULL AND record.updated_at < page.updated_at)
                       AND record.smp_action IS DISTINCT FROM 'D' AND record.ntf_action IS DISTINCT FROM 'D'
                       AND (record.action_ts IS NOT NULL OR is_deleted
                            OR record.updated_at < greatest(page.updated_at, (SELECT updated_at
                                                                                FROM subscriptions.ntf_tokens
                                                                               WHERE agent_id = $1)))
             END
    )
    SELECT ARRAY(SELECT conn_id FROM differing ORDER BY conn_id) AS differing,
           (SELECT max(conn_id) FROM page HAVING count(*) = $5) AS next`,
};

const FAILED_RECORDS = {
  list: {
    name: 'list_unreadable_subscriptions',
    text: `
      SELECT record.conn_id AS key, queue.rcv_id, queue.rcv_private_key, queue.ntf_id, queue.ntf_private_key
        FROM subscriptions.ntf_subscriptions AS record
       CROSS JOIN LATERAL (${queueOf('record')}) AS queue
       WHERE record.agent_id = $1 AND (record.ntf_failed OR record.smp_failed) AND record.conn_id > $2
       ORDER BY record.conn_id
       LIMIT $3`,
  },
  clear: {
    name: 'clear_failures_of_subscriptions',
    text: `
      UPDATE subscriptions.ntf_subscriptions
         SET ntf_failed = false, smp_failed = false, updated_at = clock_timestamp()
       WHERE agent_id = $1 AND conn_id = ANY($2::text[])`,
  },
};

const FAILED_TOKEN_DELETIONS = {
  list: {
    name: 'list_unreadable_token_deletions',
    text: `
      SELECT id::text AS key, token_id, private_key
        FROM subscriptions.ntf_tokens_to_delete
       WHERE agent_id = $1 AND del_failed AND id > coalesce(nullif($2, ''), '0')::bigint
       ORDER BY id
       LIMIT $3`,
  },
  clear: {
    name: 'clear_failures_of_token_deletions',
    text: `
      UPDATE subscriptions.ntf_tokens_to_delete SET del_failed = false WHERE agent_id = $1 AND id = ANY($2::bigint[])`,
  },
};

/** What is no check is due when it is written. $1 due until, epoch ms, $2 agent. */
const LIST_DUE = {
  name: 'list_due_subscription_servers',
  text: `
    WITH agent AS MATERIALIZED (
      SELECT agent_id FROM subscriptions.agents WHERE agent_id = $2 AND is_open
    )
    ${serversWithWork({ ntf: 'action_ts <= to_timestamp($1::float8 / 1000)' })}
     ORDER BY 1, 2, 3, 4`,
};

/** $1 the last agent of the page before, $2 agents at most. */
const LIST_AGENTS = {
  name: 'list_open_subscription_agents',
  text: 'SELECT agent_id FROM subscriptions.agents WHERE is_open AND agent_id > $1 ORDER BY agent_id LIMIT $2',
};

// --- Retention ---------------------------------------------------------------------------------------------------

const DAY_MS = 24 * 3_600_000;
/** After so long the deletion of a token or connection on its router is given up, whatever its state. */
const DELETIONS_KEPT_MS = 21 * DAY_MS;

/** Which rows of subscriptions are deleted, and when. */
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

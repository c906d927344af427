/**
 * What the reconciliation does for subscriptions. A process may end after it wrote rows and before it woke a worker for
 * them, so rows that are due wake their workers. Commands can be lost with the process that was to send them, and those
 * that the gate held back are not sent again; so records are looked for in either direction: those that are missing, and
 * those that are not wanted any more. The supervisor brings in order what differs, by the rows as they are then.
 */
import {
  deletionKeyContext,
  notifierKeyContext,
  recipientKeyContext,
} from '../../api/subscription/sealed-columns.ts';
import type { KeyBox } from '../../api/key-box.ts';
import { KeyBoxError } from '../../api/key-box.ts';
import { queueOf } from '../../api/subscription/rows.ts';
import type { Counts } from '../../workflows/recovery-contract.ts';
import type { WorkerKey } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import type { Statement } from '../postgres.ts';
import type { Reconciled } from '../reconciliation.ts';
import type { CurrentToken } from './agents.ts';
import { isGateOpen, loadToken } from './agents.ts';
import type { SubscriptionResources } from './batches.ts';
import type { SubscriptionCommands } from './commands.ts';
import { kickAll, replaceStuck } from './commands.ts';

/** Rows that are read with their keys together. */
const PAGE = MAX_CONNECTIONS;
/** Connections that one statement looks at. */
const LOOKED_AT = 2_000;
/** Subscriptions of an agent that one run has ended. */
const MOST_UNWANTED = 20 * MAX_CONNECTIONS;

/**
 * Whether an agent with this token wants its subscriptions: `kept`, `ended`, or neither while the token cannot be used,
 * as while another device takes it over.
 */
export function keepingOf(token: CurrentToken | undefined): 'kept' | 'ended' | 'as they are' {
  if (!token?.isInstant) return 'ended';
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
    const rows = await query<DueRow>(db, LIST_DUE, [nowMs + 2 * settings.reconciliationMs, agentId]);
    return rows.map(({ pool, host, port }) => ({ agentId, pool, server: { host, port } }));
  }
}

export function subscriptionReconciliation(resources: ReconciliationResources): Reconciled[] {
  const { db, log, keyBox, commands } = resources;
  const { wakeWorkers } = createDueWork(resources);

  return [
    ofAgents('unreadable row', ['recovered'], recoverUnreadable),
    ofAgents('due worker', ['kicks', 'replaced'], wakeWorkers),
    ofAgents('connection without a record', ['creates'], createMissing),
    ofAgents('unwanted record', ['unwanted'], endUnwanted),
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

  /** Has subscriptions made for connections that want one and have no record: their Create was lost. */
  async function createMissing(agentId: string): Promise<Counts> {
    if (!isGateOpen(await loadToken(db, agentId))) return {};
    const connIds = await findIds(LIST_MISSING, [agentId], MAX_CONNECTIONS);
    // Too many to name: the command looks at all connections, and costs little for those with a subscription.
    if (connIds.length === MAX_CONNECTIONS) await commands.createAll(agentId);
    else if (connIds.length > 0) await commands.send(agentId, 'create', connIds);
    return { creates: connIds.length };
  }

  /**
   * Has subscriptions ended that are not wanted any more: of connections that are switched off or gone, and all when
   * the agent wants none. One whose end failed for good is left alone until something about it changes. Records that
   * no worker finds, because the row of their messaging router was removed, are brought in order, too.
   */
  async function endUnwanted(agentId: string): Promise<Counts> {
    const areAllUnwanted = keepingOf(await loadToken(db, agentId)) === 'ended';
    const connIds = await findIds(LIST_UNWANTED, [agentId, areAllUnwanted], MOST_UNWANTED);
    await commands.send(agentId, 'reconcile', connIds);
    return { unwanted: connIds.length };
  }

  /**
   * Lets work go on that stopped because a sealed key did not open, where it opens by now: after a start without a key
   * the next one may have it again.
   */
  async function recoverUnreadable(agentId: string): Promise<Counts> {
    const recovered =
      (await recover<RecordRow>(FAILED_RECORDS, agentId, (row) => doesOpen(keyBox, agentId, row))) +
      (await recover<DeletionRow>(FAILED_TOKEN_DELETIONS, agentId, (row) =>
        opens(keyBox, row.private_key, deletionKeyContext(agentId, row.token_id)),
      ));
    if (recovered > 0) log.info({ agent_id: agentId, rows: recovered }, 'rows can be read again');
    return { recovered };
  }

  /**
   * Goes through all rows of an agent, a page at a time: usually there is nothing to be found among them.
   *
   * @param values of the statement, before the last connection of the page before and rows at most.
   * @returns so many connections at most.
   */
  async function findIds(statement: Statement, values: unknown[], most: number): Promise<string[]> {
    const found: string[] = [];
    for (let after = ''; ;) {
      const [page] = await query<PageRow>(db, statement, [...values, after, LOOKED_AT]);
      found.push(...page!.found);
      if (page!.seen < LOOKED_AT || found.length >= most) return found.slice(0, most);
      after = page!.last!;
    }
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
    row.rcv_private_key !== null &&
    opens(keyBox, row.rcv_private_key, recipientKeyContext(agentId, row.rcv_id!)) &&
    (row.ntf_private_key === null ||
      opens(keyBox, row.ntf_private_key, notifierKeyContext(agentId, row.ntf_id!)))
  );
}

function opens(keyBox: KeyBox, sealed: Buffer, context: string): boolean {
  try {
    keyBox.open(sealed, context);
    return true;
  } catch (error) {
    if (!(error instanceof KeyBoxError)) throw error;
    return false;
  }
}

interface PageRow {
  found: string[];
  /** How many were looked at. */
  seen: number;
  /** The last one of them; null: there were none. */
  last: string | null;
}

interface RecordRow {
  key: string;
  rcv_id: string | null;
  rcv_private_key: Buffer | null;
  ntf_id: string | null;
  ntf_private_key: Buffer | null;
}

interface DeletionRow {
  key: string;
  token_id: string;
  private_key: Buffer;
}

/** $1 agent, $2 the last connection of the page before, $3 connections at most. */
const LIST_MISSING = {
  name: 'list_connections_without_subscription',
  text: `
    WITH page AS MATERIALIZED (
      SELECT conn_id, NOT is_deleted AND enable_ntfs IS NOT FALSE AS is_wanted
        FROM subscriptions.connections
       WHERE agent_id = $1 AND conn_id > $2
       ORDER BY conn_id
       LIMIT $3
    )
    SELECT ARRAY(
             SELECT conn_id
               FROM page
              WHERE is_wanted
                AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions AS record
                                 WHERE record.agent_id = $1 AND record.conn_id = page.conn_id)
                AND EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                             WHERE queue.agent_id = $1 AND queue.conn_id = page.conn_id)
              ORDER BY conn_id
           ) AS found,
           (SELECT count(*)::int FROM page) AS seen, (SELECT max(conn_id) FROM page) AS last`,
};

/**
 * A record that is being ended is not listed, nor one that was given up since its connection or token last changed. No worker serves a record
 * whose messaging router is not known any more. $1 agent, $2 whether none is wanted, $3 the
 * connection of the last record of the page before, $4 records at most.
 */
const LIST_UNWANTED = {
  name: 'list_unwanted_subscriptions',
  text: `
    WITH page AS MATERIALIZED (
      SELECT agent_id, conn_id, smp_host, smp_action, ntf_action, action_ts, updated_at
        FROM subscriptions.ntf_subscriptions
       WHERE agent_id = $1 AND conn_id > $3
       ORDER BY conn_id
       LIMIT $4
    )
    SELECT ARRAY(
             SELECT record.conn_id
               FROM page AS record
               LEFT JOIN subscriptions.connections AS connection
                      ON connection.agent_id = $1 AND connection.conn_id = record.conn_id
               LEFT JOIN LATERAL (
                 SELECT true AS has_queue
                   FROM subscriptions.rcv_queues AS queue
                  WHERE queue.agent_id = $1 AND queue.conn_id = record.conn_id
               ) AS queues ON true
              WHERE connection.conn_id IS NULL OR has_queue IS NULL
                 OR record.smp_action IS NOT NULL AND record.smp_host IS NULL
                 OR (connection.enable_ntfs IS FALSE OR connection.is_deleted OR $2)
                    AND record.smp_action IS DISTINCT FROM 'D' AND record.ntf_action IS DISTINCT FROM 'D'
                    AND (record.action_ts IS NOT NULL OR connection.is_deleted
                         OR record.updated_at < greatest(connection.updated_at, (SELECT updated_at
                                                                                   FROM subscriptions.ntf_tokens
                                                                                  WHERE agent_id = $1)))
              ORDER BY record.conn_id
           ) AS found,
           (SELECT count(*)::int FROM page) AS seen, (SELECT max(conn_id) FROM page) AS last`,
};

const FAILED_RECORDS = {
  list: {
    name: 'list_unreadable_subscriptions',
    text: `
      SELECT record.conn_id AS key, queue.rcv_id, queue.rcv_private_key, queue.ntf_id, queue.ntf_private_key
        FROM subscriptions.ntf_subscriptions AS record
        LEFT JOIN LATERAL (${queueOf('record')}) AS queue ON true
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

interface DueRow {
  pool: WorkerKey['pool'];
  host: string;
  port: number;
}

/**
 * One look into an index for each server, and none at its rows. What is no check is due when it is written. $1 due until, epoch ms, $2 agent.
 */
const LIST_DUE = {
  name: 'list_due_subscription_servers',
  text: `
    WITH agent AS MATERIALIZED (
      SELECT agent_id FROM subscriptions.agents WHERE agent_id = $2 AND is_open
    )
    SELECT agent_id, 'ntf-smp' AS pool, host, port
      FROM agent
      JOIN subscriptions.smp_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_subscriptions AS record
        WHERE (record.agent_id, smp_host, smp_port) = (server.agent_id, server.host, server.port)
          AND smp_action IS NOT NULL AND NOT smp_failed
        ORDER BY action_ts
        LIMIT 1
     ) AS due
     UNION ALL
    SELECT agent_id, 'ntf-ntf', host, port
      FROM agent
      JOIN subscriptions.ntf_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_subscriptions AS record
        WHERE (record.agent_id, record.ntf_host, record.ntf_port) = (server.agent_id, server.host, server.port)
          AND ntf_action IS NOT NULL AND NOT ntf_failed AND action_ts <= to_timestamp($1::float8 / 1000)
        ORDER BY action_ts
        LIMIT 1
     ) AS due
     UNION ALL
    SELECT agent_id, 'ntf-tkn-del', host, port
      FROM agent
      JOIN subscriptions.ntf_servers AS server USING (agent_id)
     CROSS JOIN LATERAL (
       SELECT FROM subscriptions.ntf_tokens_to_delete AS deletion
        WHERE (deletion.agent_id, deletion.host, deletion.port) = (server.agent_id, server.host, server.port)
          AND NOT del_failed
        ORDER BY deletion.id
        LIMIT 1
     ) AS due
     ORDER BY 1, 2, 3, 4`,
};

/** $1 the last agent of the page before, $2 agents at most. */
const LIST_AGENTS = {
  name: 'list_open_subscription_agents',
  text: 'SELECT agent_id FROM subscriptions.agents WHERE is_open AND agent_id > $1 ORDER BY agent_id LIMIT $2',
};

/**
 * Connections of an agent and their notification subscriptions (workflows/subscription/contract.ts). Rows say how they
 * stand and what is wanted. A change writes them, and tells the agent's supervisor; a command that is lost on its way is made
 * up for by the reconciliation.
 */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';
import { isGateOpen, queueOf } from '../../api/subscription/rows.ts';
import type { SupervisorState } from '../../workflows/subscription/contract.ts';
import {
  CONNECTION_ID,
  RECONCILE_SIGNAL,
  SUBSCRIPTION_STATE_QUERY,
  TRUST_ROUTER_UPDATE,
  signalsAbout,
  supervisorOf,
  supervisorWorkflowId,
} from '../../workflows/subscription/contract.ts';
import type { Requester } from '../actions.ts';
import { byAuthor, targetOf } from '../actions.ts';
import { countOf } from '../../api/text.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import { ask, bounded, query } from '../temporal.ts';
import type { OperatorResources } from '../resources.ts';
import type { Listing, Page } from '../lists.ts';
import { DEFAULT_LIMIT, listOf } from '../lists.ts';
import { linkField } from '../resources.ts';
import type { Person, Personal, Place } from '../places.ts';
import { idsOf } from '../places.ts';
import type { ImportedConnection } from './import.ts';
import { NO_CONNECTION_ID, importQueues } from './import.ts';

/** For a slow router. */
const TRUST_LIMIT_MS = 180_000;

/** What is to be done about a subscription next. */
export type SubscriptionAction = 'key' | 'create' | 'check' | 'delete' | 'rotate';

interface SubscriptionRow {
  connId: string;
  userId: number;
  wantsNotifications: boolean;
  /** `host:port` of the messaging router with its queue; null when it has none. */
  messagingRouter: string | null;
  /** The queue has notifier credentials. */
  hasCredentials: boolean;
  /** As in `ntf_subscriptions.status`; null while there is no record. */
  status: string | null;
  notificationRouter: string | null;
  /** Null with a status: a worker gave up; `retry` starts the subscription over. */
  action: SubscriptionAction | null;
  /** Not before. */
  actionAt: Date | null;
  /** A worker could not read its rows, as without the key that sealed them; `retry` starts the subscription over. */
  isUnreadable: boolean;
  updatedAt: Date;
}

export interface SubscriptionView extends Given<SubscriptionRow> {
  link?: string;
}

export interface SubscriptionFilter {
  userId?: number;
  /** `NEW`, `KEY`, `CREATED`, …; any state of the router for `CREATED`. */
  status?: string;
  /** Only those that a worker gave up on. */
  isGivenUp?: boolean;
  /** Only those that a worker could not read. */
  isUnreadable?: boolean;
}

/** How often an agent has done something for one of its users on one router. */
export interface StatisticsView {
  userId: number;
  /** `host:port`. */
  router: string;
  /** Such as `ntfCreated`; attempts count every retry. */
  counter: string;
  value: number;
  updatedAt: Date;
}

export interface AgentView {
  agentId: string;
  /** Absent without a token. */
  token?: { status: string; mode: string; provider: string; router: string };
  /** Connections by the first word of their status; `none` is without a record. */
  connections: Record<string, number>;
  givenUp: number;
  /** Subscriptions whose keys did not open, those of deleted connections included. */
  unreadable: number;
  tokenDeletions: number;
  /** What the supervisor says; absent when it did not answer within 3 s. */
  live?: SupervisorState;
  link?: string;
}

export interface ToggledConnections {
  changed: number;
  /** Ids of no connection. */
  unknown: string[];
}

export interface DeletedConnections {
  deleted: number;
  unknown: string[];
}

/** @param resources.agentId default: `default`. */
export function subscriptionOperations(resources: OperatorResources) {
  const { temporal, db, agentId = 'default' } = resources;
  const workflowId = supervisorWorkflowId(agentId);

  return {
    /** Newest change first. */
    list: (filter: SubscriptionFilter = {}, limit = DEFAULT_LIMIT): Promise<Page<SubscriptionView>> =>
      listOf<SubscriptionRow, SubscriptionFilter & OfAgent, SubscriptionView>(
        db,
        SUBSCRIPTIONS,
        { ...filter, agentId, limit },
        viewOf,
      ),

    /** @throws NotFoundError */
    async show(connId: string): Promise<SubscriptionView> {
      const { items } = await listOf(db, SUBSCRIPTIONS, { agentId, connId, limit: 1 }, viewOf);
      if (!items[0]) throw new NotFoundError(`agent ${agentId} has no connection ${connId}`);
      return items[0];
    },

    /** Turns notifications of connections on or off. One that is so already is left alone. */
    toggle: (
      connIds: readonly string[],
      enable: boolean,
      requester?: Requester,
    ): Promise<ToggledConnections> =>
      asAction(
        'toggle',
        requester,
        { target: targetOf(connIds), detail: enable ? 'on' : 'off' },
        async () => {
          const { rows } = await db.query<ToggledRow>(TOGGLE_CONNECTIONS, [agentId, connIds, enable]);
          const changed = rows.flatMap(({ id, isChanged }) => (isChanged ? [id] : []));
          await reconcileIfWanted(changed);
          const known = rows.map(({ id }) => id);
          return { changed: changed.length, unknown: without(connIds, known) };
        },
      ),

    /**
     * Deletes connections and their subscriptions, whatever the token is. The application keeps the queues: of them, only the
     * notifiers go.
     */
    delete: (connIds: readonly string[], requester?: Requester): Promise<DeletedConnections> =>
      asAction('delete', requester, { target: targetOf(connIds) }, async () => {
        const deleted = await idsOf(db, DELETE_CONNECTIONS, [agentId, connIds]);
        await reconcile(deleted);
        return { deleted: deleted.length, unknown: without(connIds, deleted) };
      }),

    /**
     * Pins a router, messaging or notification, to another fingerprint, once it has answered under that: queues and tokens
     * on it continue under the new one.
     *
     * @throws OperationFailedError when it did not; everything stays as it was then.
     */
    trust: (router: BinaryAddress, requester?: Requester): Promise<void> =>
      asAction('trust', requester, { target: `${router.host}:${router.port}` }, () =>
        ask(
          temporal,
          {
            workflowId,
            limitMs: TRUST_LIMIT_MS,
            ifSilent: 'it does what it was asked for once one runs',
            ifNotRunning: 'a service with the role subscription starts it',
          },
          (supervisor) =>
            supervisor.executeUpdate<void, [string]>(TRUST_ROUTER_UPDATE, {
              args: [routerAddressText(router, router.protocol)],
            }),
        ),
      ),

    /**
     * Starts over what was given up or could not be read, one page after the other. While the token cannot be used, nothing
     * of what is wanted changes.
     *
     * @param connIds default: all.
     * @throws OperationFailedError for what is no id.
     */
    retry: (connIds?: readonly string[], requester?: Requester): Promise<void> =>
      asAction('retry', requester, connIds ? { target: targetOf(connIds) } : {}, async () => {
        // The supervisor takes no command that names one.
        if (connIds?.some((connId) => !CONNECTION_ID.test(connId)))
          throw new OperationFailedError(`connection ids ${NO_CONNECTION_ID}`);
        return reconcile(connIds);
      }),

    /** Takes over queues that an application has already (import.ts). */
    import: (queues: readonly unknown[], requester?: Requester): Promise<ImportedConnection[]> =>
      asAction('import', requester, { detail: countOf(queues.length, 'queue') }, async () => {
        const imported = await importQueues({ ...resources, agentId }, queues);
        await reconcileIfWanted(imported.flatMap((one) => ('connId' in one ? [one.connId] : [])));
        return imported;
      }),

    /** The counters of the agent's work, by user and router. */
    statistics: (filter: { userId?: number }, limit = DEFAULT_LIMIT): Promise<Page<StatisticsView>> =>
      listOf<StatisticsView, OfAgent & { userId?: number }>(db, STATISTICS, { ...filter, agentId, limit }),

    async status(): Promise<AgentView> {
      const [{ rows }, live] = await Promise.all([
        db.query<AgentRow>(AGENT, [agentId]),
        query<SupervisorState>(temporal, workflowId, SUBSCRIPTION_STATE_QUERY),
      ]);
      const row = rows[0];
      if (!row) throw new NotFoundError(`there is no agent ${agentId}`);
      return {
        ...given(row),
        agentId,
        ...(live ? { live } : {}),
        ...linkField(resources, workflowId),
      };
    },
  };

  function asAction<T>(
    command: string,
    { requestedBy }: Requester = {},
    of: { target?: string; detail?: string },
    change: () => Promise<T>,
  ): Promise<T> {
    return byAuthor({ db }, { action: `subscriptions ${command}`, requestedBy, ...of }, change);
  }

  /** Has subscriptions follow their rows, unless the token wants none: its own commands come with a change of that. */
  async function reconcileIfWanted(connIds: readonly string[]): Promise<void> {
    const { rows } = await db.query<{ status: string; mode: string | null }>(LOAD_GATE, [agentId]);
    if (isGateOpen(rows[0])) await reconcile(connIds);
  }

  async function reconcile(connIds?: readonly string[]): Promise<void> {
    const { workflowType, ...options } = supervisorOf(agentId);
    for (const signalArgs of signalsAbout(connIds)) {
      const signal = { signal: RECONCILE_SIGNAL, signalArgs };
      await bounded(temporal, () =>
        temporal.workflow.signalWithStart(workflowType, { ...options, ...signal }),
      );
    }
  }

  function viewOf(row: SubscriptionRow): SubscriptionView {
    return { ...given(row), ...linkField(resources, workflowId) };
  }
}

/** Connections of one command. */
const TOGETHER = 500;

/**
 * What subscriptions keep of one of the numbers under which an agent has its users. The agent's supervisor deletes the
 * connections: routers delete queues and subscriptions only for the keys of a connection, and the keys go after that.
 */
export function subscriptionsOf(
  resources: OperatorResources,
  { subscriptionUser }: Pick<Person, 'subscriptionUser'>,
): Personal {
  if (subscriptionUser === undefined) return { places: [] };
  const { db, agentId = 'default' } = resources;
  const values = [agentId, subscriptionUser];
  const count = async (table: string, condition: string): Promise<number> => {
    const { rows } = await db.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM subscriptions.${table} WHERE agent_id = $1 AND user_id = $2 AND ${condition}`,
      values,
    );
    return rows[0]!.count;
  };
  const connections: Place = {
    what: 'subscriptions.connections',
    count: () => count('connections', 'NOT is_deleted'),
    async forget() {
      for (let total = 0; ;) {
        const connIds = await idsOf(
          db,
          `SELECT conn_id AS id FROM subscriptions.connections
            WHERE agent_id = $1 AND user_id = $2 AND NOT is_deleted ORDER BY conn_id LIMIT ${TOGETHER}`,
          values,
        );
        if (connIds.length === 0) return total;
        await subscriptionOperations(resources).delete(connIds);
        total += connIds.length;
      }
    },
  };
  return {
    places: [
      connections,
      {
        table: 'subscriptions.servers_stats',
        key: ['agent_id', 'user_id', 'host', 'port', 'counter'],
        // Workers count their work for connections that are still to be deleted.
        where: `agent_id = $1 AND user_id = $2
          AND NOT EXISTS (SELECT FROM subscriptions.connections WHERE agent_id = $1 AND user_id = $2)
          AND NOT EXISTS (SELECT FROM subscriptions.ntf_subscriptions WHERE agent_id = $1 AND user_id = $2)`,
        values,
        isIndexed: true,
      },
    ],
    async remains() {
      const left = (await count('connections', 'is_deleted')) + (await count('ntf_subscriptions', 'true'));
      if (left === 0) return [];
      return [
        {
          what: `${left} rows of connections and subscriptions of the agent's user ${subscriptionUser}, with their sealed keys`,
          ends: 'when their routers have deleted them (galaxy-notify subscriptions status), or after 21 days',
        },
      ];
    },
  };
}

interface ToggledRow {
  id: string;
  isChanged: boolean;
}

function without(all: readonly string[], known: readonly string[]): string[] {
  const found = new Set(known);
  return all.filter((connId) => !found.has(connId));
}

const LOAD_GATE = 'SELECT status, mode FROM subscriptions.ntf_tokens WHERE agent_id = $1';

/** All that there are, locked in one order, and whether they have changed. */
const TOGGLE_CONNECTIONS = `
  WITH named AS MATERIALIZED (
    SELECT conn_id
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted
     ORDER BY conn_id
       FOR UPDATE
  ), changed AS (
    UPDATE subscriptions.connections AS connection
       SET enable_ntfs = $3, updated_at = clock_timestamp()
      FROM named
     WHERE agent_id = $1 AND connection.conn_id = named.conn_id AND coalesce(enable_ntfs, true) <> $3
    RETURNING connection.conn_id
  )
  SELECT conn_id AS id, conn_id IN (SELECT conn_id FROM changed) AS "isChanged" FROM named`;

/**
 * Marks connections as deleted; they go when they have no subscription any more. Those that are being deleted already count
 * again.
 */
const DELETE_CONNECTIONS = `
  WITH named AS MATERIALIZED (
    SELECT conn_id
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id = ANY($2::text[])
     ORDER BY conn_id
       FOR UPDATE
  )
  UPDATE subscriptions.connections AS connection
     SET is_deleted = true, updated_at = clock_timestamp()
    FROM named
   WHERE agent_id = $1 AND connection.conn_id = named.conn_id
  RETURNING connection.conn_id AS id`;

interface OfAgent {
  agentId: string;
  connId?: string;
}

const SUBSCRIPTIONS: Listing<SubscriptionFilter & OfAgent> = {
  columns: `connection.conn_id AS "connId", connection.user_id AS "userId",
         coalesce(enable_ntfs, true) AS "wantsNotifications", queue.host || ':' || queue.port AS "messagingRouter",
         queue.ntf_id IS NOT NULL AS "hasCredentials", record.status,
         ntf_host || ':' || ntf_port AS "notificationRouter",
         CASE coalesce('ntf ' || ntf_action, 'smp ' || smp_action)
           WHEN 'smp K' THEN 'key' WHEN 'ntf N' THEN 'create' WHEN 'ntf C' THEN 'check' WHEN 'ntf R' THEN 'rotate'
           WHEN 'smp D' THEN 'delete' WHEN 'ntf D' THEN 'delete'
         END AS action,
         action_ts AS "actionAt", coalesce(ntf_failed OR smp_failed, false) AS "isUnreadable",
         greatest(connection.updated_at, record.updated_at) AS "updatedAt"`,
  from: `subscriptions.connections AS connection
    LEFT JOIN LATERAL (${queueOf('connection')}) AS queue ON true
    LEFT JOIN subscriptions.ntf_subscriptions AS record USING (agent_id, conn_id)`,
  order: '"updatedAt" DESC, conn_id',
  always: 'NOT connection.is_deleted',
  filters: {
    agentId: 'connection.agent_id = ?',
    connId: 'connection.conn_id = ?',
    userId: 'connection.user_id = ?',
    status: "split_part(record.status, ' ', 1) = upper(?)",
    isGivenUp: '(record.status IS NOT NULL AND action_ts IS NULL) = ?',
    isUnreadable: 'coalesce(ntf_failed OR smp_failed, false) = ?',
  },
};

const STATISTICS: Listing<OfAgent & { userId?: number }> = {
  columns: `user_id AS "userId", host || ':' || port AS router, counter, value::float8 AS value, updated_at AS "updatedAt"`,
  from: 'subscriptions.servers_stats',
  order: 'user_id, host, port, counter',
  filters: { agentId: 'agent_id = ?', userId: 'user_id = ?' },
};

interface AgentRow extends Omit<AgentView, 'agentId' | 'token' | 'live' | 'link'> {
  token: NonNullable<AgentView['token']> | null;
}

const AGENT = `
  SELECT (SELECT json_build_object('status', status, 'mode', coalesce(mode, 'PERIODIC'), 'provider', provider,
                                   'router', format('%s:%s', host, port))
            FROM subscriptions.ntf_tokens
           WHERE ntf_tokens.agent_id = agents.agent_id) AS token,
         (SELECT coalesce(json_object_agg(status, count), '{}')
            FROM (SELECT coalesce(split_part(status, ' ', 1), 'none') AS status, count(*) AS count
                    FROM subscriptions.connections AS connection
                    LEFT JOIN subscriptions.ntf_subscriptions AS subscription USING (agent_id, conn_id)
                   WHERE connection.agent_id = agents.agent_id AND NOT is_deleted
                   GROUP BY 1) AS counted) AS connections,
         (SELECT count(*)::int
            FROM subscriptions.ntf_subscriptions AS subscription
           WHERE subscription.agent_id = agents.agent_id AND action_ts IS NULL) AS "givenUp",
         (SELECT count(*)::int
            FROM subscriptions.ntf_subscriptions AS subscription
           WHERE subscription.agent_id = agents.agent_id AND (ntf_failed OR smp_failed)) AS unreadable,
         (SELECT count(*)::int
            FROM subscriptions.ntf_tokens_to_delete AS deletion
           WHERE deletion.agent_id = agents.agent_id) AS "tokenDeletions"
    FROM subscriptions.agents
   WHERE agent_id = $1`;

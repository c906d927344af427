/**
 * Connections of an agent and their notification subscriptions (workflows/subscription/contract.ts). Rows say how they
 * stand; what is to change is asked of the agent's supervisor, which does one thing after the other.
 */
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import { queueOf } from '../../api/subscription/rows.ts';
import type {
  AgentState,
  DeletedConnections,
  SupervisorState,
  ToggledConnections,
} from '../../workflows/subscription/contract.ts';
import {
  DELETE_CONNECTIONS_UPDATE,
  REPLAY_UPDATE,
  RETRY_CONNECTIONS_UPDATE,
  SUBSCRIPTION_STATE_QUERY,
  TOGGLE_CONNECTIONS_UPDATE,
  TRUST_ROUTER_UPDATE,
  supervisorWorkflowId,
} from '../../workflows/subscription/contract.ts';
import type { Requester } from '../actions.ts';
import { byAuthor, targetOf } from '../actions.ts';
import { countOf } from '../../api/text.ts';
import { NotFoundError } from '../errors.ts';
import { ask, query } from '../temporal.ts';
import type { OperatorResources } from '../resources.ts';
import type { Listing, Page, WithoutNulls } from '../lists.ts';
import { DEFAULT_LIMIT, listOf, withoutNulls } from '../lists.ts';
import { linkField } from '../resources.ts';
import { importQueues } from './requests.ts';

/** A change may wait for a slow router. */
const UPDATE_LIMIT_MS = 180_000;

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

export interface SubscriptionView extends WithoutNulls<SubscriptionRow> {
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
      const { columns, from, always } = SUBSCRIPTIONS;
      const { rows } = await db.query<SubscriptionRow>(
        `SELECT ${columns} FROM ${from} WHERE ${always} AND connection.agent_id = $1 AND connection.conn_id = $2`,
        [agentId, connId],
      );
      if (!rows[0]) throw new NotFoundError(`agent ${agentId} has no connection ${connId}`);
      return viewOf(rows[0]);
    },

    /** Turns notifications of connections on or off. */
    toggle: (connIds: readonly string[], enable: boolean, requester?: Requester) =>
      asAction('toggle', requester, { target: targetOf(connIds), detail: enable ? 'on' : 'off' }, () =>
        update<ToggledConnections>(TOGGLE_CONNECTIONS_UPDATE, { connIds, enable }),
      ),

    /** Deletes connections and their subscriptions. The application keeps the queues. */
    delete: (connIds: readonly string[], requester?: Requester) =>
      asAction('delete', requester, { target: targetOf(connIds) }, () =>
        update<DeletedConnections>(DELETE_CONNECTIONS_UPDATE, { connIds }),
      ),

    /**
     * Pins a router, messaging or notification, to another fingerprint, once it has answered under that: queues and tokens
     * on it continue under the new one.
     *
     * @throws OperationFailedError when it did not; everything stays as it was then.
     */
    trust: (router: BinaryAddress, requester?: Requester): Promise<void> =>
      asAction('trust', requester, { target: `${router.host}:${router.port}` }, () =>
        update<void>(TRUST_ROUTER_UPDATE, router),
      ),

    /**
     * Starts over what was given up or could not be read, one page after the other. While the token cannot be used, nothing
     * of what is wanted changes.
     *
     * @param connIds default: all.
     */
    retry: (connIds?: readonly string[], requester?: Requester): Promise<void> =>
      asAction('retry', requester, connIds ? { target: targetOf(connIds) } : {}, () =>
        update<void>(RETRY_CONNECTIONS_UPDATE, connIds ? { connIds } : {}),
      ),

    import: (queues: readonly unknown[], requester?: Requester) =>
      asAction('import', requester, { detail: countOf(queues.length, 'queue') }, () =>
        importQueues({ ...resources, agentId, update }, queues),
      ),

    /** The counters of the agent's work, by user and router. */
    statistics: (filter: { userId?: number }, limit = DEFAULT_LIMIT): Promise<Page<StatisticsView>> =>
      listOf<StatisticsView, OfAgent & { userId?: number }>(db, STATISTICS, { ...filter, agentId, limit }),

    /** Wakes a worker for everything that is due. */
    wake: (requester?: Requester) => asAction('wake', requester, {}, () => update<AgentState>(REPLAY_UPDATE)),

    async status(): Promise<AgentView> {
      const [{ rows }, live] = await Promise.all([
        db.query<AgentRow>(AGENT, [agentId]),
        query<SupervisorState>(temporal, workflowId, SUBSCRIPTION_STATE_QUERY),
      ]);
      const row = rows[0];
      if (!row) throw new NotFoundError(`there is no agent ${agentId}`);
      return {
        ...withoutNulls(row),
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

  /** Asks the supervisor. */
  function update<Result>(name: string, argument?: object): Promise<Result> {
    return ask(
      temporal,
      {
        workflowId,
        limitMs: UPDATE_LIMIT_MS,
        ifSilent: 'it does what it was asked for once one runs',
        ifNotRunning: 'a service with the role subscription starts it',
      },
      (supervisor) =>
        argument
          ? supervisor.executeUpdate<Result, [object]>(name, { args: [argument] })
          : supervisor.executeUpdate<Result, []>(name),
    );
  }

  function viewOf(row: SubscriptionRow): SubscriptionView {
    return { ...withoutNulls(row), ...linkField(resources, workflowId) };
  }
}

interface OfAgent {
  agentId: string;
}

const SUBSCRIPTIONS = {
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
    userId: 'connection.user_id = ?',
    status: "split_part(record.status, ' ', 1) = upper(?)",
    isGivenUp: '(record.status IS NOT NULL AND action_ts IS NULL) = ?',
    isUnreadable: 'coalesce(ntf_failed OR smp_failed, false) = ?',
  },
} satisfies Listing<SubscriptionFilter & OfAgent>;

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

/**
 * Connections of an agent and their notification subscriptions (workflows/subscription/contract.ts). Rows say how they
 * stand; what is to change is asked of the agent's supervisor, which does one thing after the other.
 */
import { randomUUID } from 'node:crypto';
import type { WorkflowHandle } from '@temporalio/client';
import type { RouterAddress } from '../../api/subscription/router-address.ts';
import type { RecordAction } from '../../api/subscription/rows.ts';
import { actionOf, queueOf } from '../../api/subscription/rows.ts';
import type {
  AgentState,
  ConnectionList,
  DeletedConnections,
  RouterChange,
  RouterStates,
  SupervisorState,
  ToggleConnections,
  ToggledConnections,
} from '../../workflows/subscription/contract.ts';
import {
  CHANGE_WORKFLOW,
  DELETE_CONNECTIONS_UPDATE,
  REPLAY_UPDATE,
  RESET_STATISTICS_UPDATE,
  SUBSCRIPTION_STATE_QUERY,
  SUBSCRIPTION_TASK_QUEUE,
  TOGGLE_CONNECTIONS_UPDATE,
  changeWorkflowId,
  supervisorWorkflowId,
} from '../../workflows/subscription/contract.ts';
import type { Requester } from '../actions.ts';
import { byAuthor, targetOf } from '../actions.ts';
import { NotFoundError } from '../errors.ts';
import { ask, awaitRun, query } from '../temporal.ts';
import type { OperatorResources } from '../resources.ts';
import type { Page } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf } from '../lists.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';
import { linkField } from '../resources.ts';
import type { RetryFilter } from './upkeep.ts';
import { abandon, chooseRetryable, countUnreadableDeletions, importQueues } from './upkeep.ts';

/** A change may wait for a slow router. */
const UPDATE_LIMIT_MS = 180_000;

/** What is to be done about a subscription next. */
export type SubscriptionAction = 'key' | 'create' | 'check' | 'delete' | 'rotate';

const ACTION_NAMES: Record<RecordAction, SubscriptionAction> = {
  'smp-key': 'key',
  'smp-delete': 'delete',
  'ntf-create': 'create',
  'ntf-check': 'check',
  'ntf-delete': 'delete',
  'ntf-rotate': 'rotate',
};

export interface SubscriptionView {
  connId: string;
  userId: number;
  wantsNotifications: boolean;
  /** `host:port` of the messaging router with its queue; absent when it has none. */
  messagingRouter?: string;
  /** The queue has notifier credentials. */
  hasCredentials: boolean;
  /** As in `ntf_subscriptions.status`; absent while there is no record. */
  status?: string;
  notificationRouter?: string;
  /** Absent with a status: a worker gave up; `retry` starts the subscription over. */
  action?: SubscriptionAction;
  /** Not before. */
  actionAt?: Date;
  /** A worker could not read its rows, as without the key that sealed them; `retry` starts the subscription over. */
  isUnreadable: boolean;
  updatedAt: Date;
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
    async list(filter: SubscriptionFilter = {}, limit = DEFAULT_LIMIT): Promise<Page<SubscriptionView>> {
      const { where, values, next } = conditions([
        ['connection.agent_id = ?', agentId],
        ['NOT connection.is_deleted'],
        ['connection.user_id = ?', filter.userId],
        ["split_part(subscription.status, ' ', 1) = ?", filter.status?.toUpperCase()],
        ['(subscription.status IS NOT NULL AND subscription.action_ts IS NULL) = ?', filter.isGivenUp],
        ['coalesce(ntf_failed OR smp_failed, false) = ?', filter.isUnreadable],
      ]);
      const order = `ORDER BY updated_at DESC, conn_id LIMIT ${next}`;
      const { rows } = await db.query<Row>(`${VIEW} ${where} ${order}`, [...values, limit + 1]);
      return pageOf(rows, limit, viewOf);
    },

    /** @throws NotFoundError */
    async show(connId: string): Promise<SubscriptionView> {
      const [found] = await viewsOf([connId]);
      if (!found) throw new NotFoundError(`agent ${agentId} has no connection ${connId}`);
      return found;
    },

    /** Turns notifications of connections on or off. */
    toggle(connIds: readonly string[], enable: boolean, { requestedBy }: Requester = {}) {
      const of = { target: targetOf(connIds), detail: enable ? 'on' : 'off' };
      return byAuthor({ db }, { action: 'subscriptions toggle', requestedBy, ...of }, () =>
        update((supervisor) =>
          supervisor.executeUpdate<ToggledConnections, [ToggleConnections]>(TOGGLE_CONNECTIONS_UPDATE, {
            args: [{ connIds: [...connIds], enable }],
          }),
        ),
      );
    },

    /** Deletes connections and their subscriptions. The application keeps the queues. */
    delete: (connIds: readonly string[], { requestedBy }: Requester = {}) =>
      byAuthor({ db }, { action: 'subscriptions delete', target: targetOf(connIds), requestedBy }, () =>
        update((supervisor) =>
          supervisor.executeUpdate<DeletedConnections, [ConnectionList]>(DELETE_CONNECTIONS_UPDATE, {
            args: [{ connIds: [...connIds] }],
          }),
        ),
      ),

    /**
     * Pins a router, messaging or notification, to another fingerprint or way of speaking, once it has answered under
     * that: what is on it goes on under the new one.
     *
     * @throws OperationFailedError when it did not; everything stays as it was then.
     */
    trust({ host, port, keyHash }: RouterAddress, { requestedBy }: Requester = {}): Promise<void> {
      const server = { host, port, keyHash };
      const target = `${host}:${port}`;
      return byAuthor({ db }, { action: 'subscriptions trust', target, requestedBy }, () =>
        change<void>({ trust: { server } }),
      );
    },

    /** Has one process of the service ask each router of the agent whether it is there. */
    routers: (): Promise<RouterStates> => change<RouterStates>({ look: {} }),

    /** How many connections were given up or could not be read. */
    async countRetryable(filter: RetryFilter = {}): Promise<number> {
      const { from, given } = chooseRetryable(agentId, filter);
      const { rows } = await db.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM ${from} ${given.where}`,
        given.values,
      );
      return rows[0]!.count;
    },

    /** Deleted connections and tokens whose keys do not open: nothing is done about them, nor forgotten. */
    countUnreadableDeletions: () => countUnreadableDeletions(db, agentId),

    /** Forgets these. */
    abandon: ({ requestedBy }: Requester = {}) =>
      byAuthor(
        { db },
        { action: 'subscriptions abandon', requestedBy },
        () => abandon(db, agentId),
        ({ connections, tokens }) => ({
          detail: `${connections} deleted connections and ${tokens} deleted tokens`,
        }),
      ),

    import: (queues: readonly unknown[], { requestedBy }: Requester = {}) =>
      byAuthor(
        { db },
        { action: 'subscriptions import', requestedBy },
        () => importQueues({ db, agentId, keyBox: resources.keyBox?.(), update }, queues),
        madeOf,
      ),

    /** The counters of the agent's work, by user and router. */
    async statistics(userId?: number, limit = DEFAULT_LIMIT): Promise<Page<StatisticsView>> {
      const { where, values, next } = conditions([
        ['agent_id = ?', agentId],
        ['user_id = ?', userId],
      ]);
      const { rows } = await db.query<StatisticsView>(
        `${STATISTICS} ${where} ${STATISTICS_ORDER} LIMIT ${next}`,
        [...values, limit + 1],
      );
      return pageOf(rows, limit, (row) => row);
    },

    /** Sets these counters back. @returns how many there were. */
    async resetStatistics({ requestedBy }: Requester = {}): Promise<number> {
      const action = { action: 'subscriptions statistics --reset', requestedBy };
      const { counters } = await byAuthor({ db }, action, () =>
        update((supervisor) => supervisor.executeUpdate<{ counters: number }, []>(RESET_STATISTICS_UPDATE)),
      );
      return counters;
    },

    /** Wakes a worker for everything that is due. */
    wake: ({ requestedBy }: Requester = {}) =>
      byAuthor({ db }, { action: 'subscriptions wake', requestedBy }, () =>
        update((supervisor) => supervisor.executeUpdate<AgentState, []>(REPLAY_UPDATE)),
      ),

    async status(): Promise<AgentView> {
      const [{ rows }, live] = await Promise.all([
        db.query<AgentRow>(AGENT, [agentId]),
        query<SupervisorState>(temporal, workflowId, SUBSCRIPTION_STATE_QUERY),
      ]);
      const row = rows[0];
      if (!row) throw new NotFoundError(`there is no agent ${agentId}`);
      const { token, connections, given_up: givenUp, token_deletions: tokenDeletions } = row;
      return {
        agentId,
        ...(token ? { token } : {}),
        connections: connections ?? {},
        givenUp,
        unreadable: row.unreadable,
        tokenDeletions,
        ...(live ? { live } : {}),
        ...linkField(resources, workflowId),
      };
    },

    /**
     * Waits until the subscriptions of all these connections are made.
     *
     * @returns how they stand, those that are not `CREATED` included when the time was up.
     */
    async wait(connIds: readonly string[], options: WaitOptions): Promise<SubscriptionView[]> {
      let views: SubscriptionView[] = [];
      await waitUntil(async () => {
        views = await viewsOf(connIds);
        return views.every(({ status }) => status?.startsWith('CREATED')) || undefined;
      }, options);
      return views;
    },
  };

  async function viewsOf(connIds: readonly string[]): Promise<SubscriptionView[]> {
    const { rows } = await db.query<Row>(
      `${VIEW} WHERE connection.agent_id = $1 AND NOT connection.is_deleted AND connection.conn_id = ANY ($2)
        ORDER BY conn_id`,
      [agentId, connIds],
    );
    return rows.map(viewOf);
  }

  function update<T>(make: (supervisor: WorkflowHandle) => Promise<T>): Promise<T> {
    return ask(
      temporal,
      {
        workflowId,
        limitMs: UPDATE_LIMIT_MS,
        ifSilent: 'it does what it was asked for once one runs',
        ifNotRunning: 'a service with the role subscription starts it',
      },
      make,
    );
  }

  /** Runs work that waits for routers in a separate workflow. */
  function change<T>(asked: RouterChange): Promise<T> {
    const id = changeWorkflowId(agentId, randomUUID());
    const limitMs = UPDATE_LIMIT_MS;
    return awaitRun(
      temporal,
      { workflowId: id, limitMs, ifSilent: 'it does what it was asked for once one runs' },
      () =>
        temporal.workflow.execute<(agentId: string, change: RouterChange) => Promise<T>>(CHANGE_WORKFLOW, {
          workflowId: id,
          taskQueue: SUBSCRIPTION_TASK_QUEUE,
          args: [agentId, asked],
          staticSummary: `routers of ${agentId}`,
        }),
    );
  }

  function viewOf(row: Row): SubscriptionView {
    const action = actionOf(row.ntf_action, row.smp_action);
    return {
      connId: row.conn_id,
      userId: row.user_id,
      wantsNotifications: row.enable_ntfs ?? true,
      ...(row.messaging_router === null ? {} : { messagingRouter: row.messaging_router }),
      hasCredentials: row.has_credentials ?? false,
      ...(row.status === null ? {} : { status: row.status }),
      ...(row.notification_router === null ? {} : { notificationRouter: row.notification_router }),
      ...(action === undefined ? {} : { action: ACTION_NAMES[action] }),
      ...(row.action_ts === null ? {} : { actionAt: row.action_ts }),
      isUnreadable: row.is_unreadable,
      updatedAt: row.updated_at,
      ...linkField(resources, workflowId),
    };
  }
}

/** What was made, of those for which a router did its part; undefined: nothing. */
function madeOf(made: readonly ({ connId: string } | object)[]): { target: string } | undefined {
  const connIds = made.flatMap((one) => ('connId' in one ? [one.connId] : []));
  return connIds.length === 0 ? undefined : { target: targetOf(connIds) };
}

interface Row {
  conn_id: string;
  user_id: number;
  enable_ntfs: boolean | null;
  messaging_router: string | null;
  has_credentials: boolean | null;
  status: string | null;
  notification_router: string | null;
  ntf_action: string | null;
  smp_action: string | null;
  action_ts: Date | null;
  is_unreadable: boolean;
  updated_at: Date;
}

const STATISTICS = `
  SELECT user_id AS "userId", host || ':' || port AS router, counter, value::float8 AS value, updated_at AS "updatedAt"
    FROM subscriptions.servers_stats`;
const STATISTICS_ORDER = 'ORDER BY user_id, host, port, counter';

const VIEW = `
  SELECT connection.conn_id, connection.user_id, enable_ntfs,
         queue.host || ':' || queue.port AS messaging_router, queue.ntf_id IS NOT NULL AS has_credentials,
         subscription.status, ntf_host || ':' || ntf_port AS notification_router,
         ntf_action, smp_action, action_ts, coalesce(ntf_failed OR smp_failed, false) AS is_unreadable, greatest(connection.updated_at, subscription.updated_at) AS updated_at
    FROM subscriptions.connections AS connection
    LEFT JOIN LATERAL (${queueOf('connection')}) AS queue ON true
    LEFT JOIN subscriptions.ntf_subscriptions AS subscription USING (agent_id, conn_id)`;

interface AgentRow {
  token: NonNullable<AgentView['token']> | null;
  connections: Record<string, number> | null;
  given_up: number;
  unreadable: number;
  token_deletions: number;
}

const AGENT = `
  SELECT (SELECT json_build_object('status', status, 'mode', coalesce(mode, 'PERIODIC'), 'provider', provider,
                                   'router', format('%s:%s', host, port))
            FROM subscriptions.ntf_tokens
           WHERE ntf_tokens.agent_id = agents.agent_id) AS token,
         (SELECT json_object_agg(status, count)
            FROM (SELECT coalesce(split_part(status, ' ', 1), 'none') AS status, count(*) AS count
                    FROM subscriptions.connections AS connection
                    LEFT JOIN subscriptions.ntf_subscriptions AS subscription USING (agent_id, conn_id)
                   WHERE connection.agent_id = agents.agent_id AND NOT is_deleted
                   GROUP BY 1) AS counted) AS connections,
         (SELECT count(*)::int
            FROM subscriptions.ntf_subscriptions AS subscription
           WHERE subscription.agent_id = agents.agent_id AND action_ts IS NULL) AS given_up,
         (SELECT count(*)::int
            FROM subscriptions.ntf_subscriptions AS subscription
           WHERE subscription.agent_id = agents.agent_id AND (ntf_failed OR smp_failed)) AS unreadable,
         (SELECT count(*)::int
            FROM subscriptions.ntf_tokens_to_delete AS deletion
           WHERE deletion.agent_id = agents.agent_id) AS token_deletions
    FROM subscriptions.agents
   WHERE agent_id = $1`;

/**
 * What a supervisor does about its commands: one transaction each, no network, and then the workers that have
 * something to do are woken. A command that is carried out again changes nothing more.
 */
import type { PoolClient } from 'pg';
import { actionOf, queueOf } from '../../api/subscription/rows.ts';
import type { Command, WorkerKey } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS } from '../../workflows/subscription/contract.ts';
import type { RecordFacts, ServerKey } from '../../workflows/subscription/rules.ts';
import { bucketOf, distinctServers } from '../../workflows/subscription/rules.ts';
import { inTransaction, run, saveIsolated } from '../transactions.ts';
import { loadToken } from './agents.ts';
import { keepingOf } from './reconciliation.ts';
import type { SubscriptionResources } from './batches.ts';
import { NO_QUEUE } from './batches.ts';
import { lockRecords } from './claims.ts';
import { kickAll } from './commands.ts';
import { addressOf } from './rows.ts';
import type { SubscriptionEvent } from './events.ts';
import { announceEvent, errorText, writeEvent } from './events.ts';
import type { NewRecord } from './records.ts';
import { createRecords, resetRecords, setActions } from './records.ts';
import type { RouterAddress } from './router/ports.ts';
import type { AddressRow } from './rows.ts';

export interface CommandOrder extends Command {
  agentId: string;
  /** Epoch ms, the workflow's. */
  nowMs: number;
  /** Of a command for all connections: those after this one. */
  after?: string;
}

export interface CommandOutcome {
  /** Of a command for all connections: the last one that this was about. */
  next?: string;
}

interface Applied {
  kicks: WorkerKey[];
  errors: SubscriptionEvent['errors'];
}

export function createCommandWork(resources: SubscriptionResources) {
  const { db, log, metrics } = resources;

  return {
    /** Carries out a command, or a page of one that is for all connections. */
    async applyCommand(order: CommandOrder): Promise<CommandOutcome> {
      const { agentId, kind, connIds: named, after = '' } = order;
      const { kicks, event, connIds } = await inTransaction(db, async (client) => {
        const connIds = named ?? (await listSubscribed(client, agentId, after));
        const { kicks, errors } = await APPLY[kind](client, agentId, [...connIds].sort(), order.nowMs);
        const event: SubscriptionEvent = { agentId, kind: 'ERRS', errors };
        await writeEvent(client, event);
        return { kicks, event, connIds };
      });
      metrics.subscriptionCommand({ kind });
      log.info(
        { agent_id: agentId, kind, connections: connIds.length, errors: event.errors.length },
        'subscription command carried out',
      );
      announceEvent(resources, event);
      const next = named || connIds.length < MAX_CONNECTIONS ? undefined : connIds.at(-1);
      await kickAll(resources, kicks);
      return next === undefined ? {} : { next };
    },
  };
}

type Apply = (client: PoolClient, agentId: string, connIds: string[], nowMs: number) => Promise<Applied>;

const APPLY: Record<Command['kind'], Apply> = {
  async create(client, agentId, connIds, nowMs) {
    const { found, errors } = await loadConnections(client, agentId, connIds);
    const created = await createWanted(client, agentId, found, nowMs);
    return { kicks: created.kicks, errors: [...errors, ...created.errors] };
  },

  async 'smp-delete'(client, agentId, connIds, nowMs) {
    const { found, errors } = await loadConnections(client, agentId, connIds);
    return { kicks: await end(client, agentId, found, nowMs), errors };
  },

  async reconcile(client, agentId, connIds, nowMs) {
    const { found } = await loadConnections(client, agentId, connIds, true);
    const keeping = keepingOf(await loadToken(client, agentId));
    const isWanted = ({ isEnabled, isDeleted }: FoundConnection) => isEnabled && !isDeleted;
    const unwanted = found.filter((one) => one.record && (!isWanted(one) || keeping === 'ended'));
    const wanted = keeping === 'kept' ? found.filter(isWanted) : [];
    const kicks = await end(client, agentId, unwanted, nowMs);
    const created = await createWanted(client, agentId, wanted, nowMs);
    return { kicks: [...kicks, ...created.kicks], errors: created.errors };
  },
};

/** Makes, starts over or wakes the subscriptions of connections; those that are switched off are left alone. */
async function createWanted(
  client: PoolClient,
  agentId: string,
  found: readonly FoundConnection[],
  nowMs: number,
): Promise<Applied> {
  const token = await loadToken(client, agentId);
  const kicks: WorkerKey[] = [];
  const fresh: NewRecord[] = [];
  const stale: NewRecord[] = [];
  for (const connection of found.filter(({ isEnabled }) => isEnabled)) {
    const { queue, record } = connection;
    const bucket = bucketOf({ server: queue.address, notifierId: queue.notifierId }, record);
    if (bucket.bucket === 'continue') kicks.push({ agentId, pool: bucket.pool, server: bucket.server });
    // Without a token there is no router to subscribe on; the token's own Create will come.
    else if (token) {
      const list = bucket.bucket === 'new' ? fresh : stale;
      const { connId, userId } = connection;
      const [smpServer, ntfServer] = [queue.address, token.address];
      list.push({ connId, userId, smpServer, ntfServer, status: 'NEW', action: 'smp-key' });
    }
  }
  const refused = [
    ...(await saveIsolated(client, fresh, (some) => createRecords(client, agentId, some, nowMs))),
    ...(await saveIsolated(client, stale, (some) => resetRecords(client, agentId, some, nowMs))),
  ];
  const written = [...fresh, ...stale].map(({ smpServer }) => smpServer);
  return {
    kicks: [...kicks, ...smpKicks(agentId, written)],
    errors: refused.map(({ item: { connId }, reason }) => ({ connId, error: `STORE INTERNAL: ${reason}` })),
  };
}

async function end(
  client: PoolClient,
  agentId: string,
  found: readonly FoundConnection[],
  nowMs: number,
): Promise<WorkerKey[]> {
  const ids = found.map(({ connId }) => connId);
  await setActions(client, agentId, ids, 'smp-delete', nowMs);
  return smpKicks(
    agentId,
    found.map(({ queue, record }) => record?.smpServer ?? queue.address),
  );
}

function smpKicks(agentId: string, servers: readonly ServerKey[]): WorkerKey[] {
  return distinctServers(servers).map((server) => ({ agentId, pool: 'ntf-smp' as const, server }));
}

interface FoundConnection {
  connId: string;
  userId: number;
  isEnabled: boolean;
  isDeleted: boolean;
  queue: { address: RouterAddress; notifierId: string | undefined };
  record: RecordFacts | undefined;
}

async function loadConnections(
  client: PoolClient,
  agentId: string,
  connIds: readonly string[],
  withDeleted = false,
): Promise<{ found: FoundConnection[]; errors: SubscriptionEvent['errors'] }> {
  // The lock is a separate statement: a SELECT that waited for a worker's transaction would return the record as the
  // worker wrote it, but the queue as it was before.
  await lockRecords(client, agentId, connIds);
  const rows = await run<ConnectionRow>(client, LOAD_CONNECTIONS, [agentId, connIds, withDeleted]);
  const found = rows.map(foundOf);
  const known = new Set(found.map(({ connId }) => connId));
  const errors = connIds
    .filter((connId) => !known.has(connId))
    .map((connId) => ({ connId, error: errorText(NO_QUEUE) }));
  return { found, errors };
}

function foundOf(row: ConnectionRow): FoundConnection {
  return {
    connId: row.conn_id,
    userId: row.user_id,
    isEnabled: row.is_enabled,
    isDeleted: row.is_deleted,
    queue: { address: addressOf(row), notifierId: row.ntf_id ?? undefined },
    record:
      row.ntf_host === null
        ? undefined
        : {
            ntfServer: { host: row.ntf_host, port: row.ntf_port! },
            smpServer: { host: row.smp_host!, port: row.smp_port! },
            notifierId: row.smp_ntf_id ?? undefined,
            action: actionOf(row.ntf_action, row.smp_action),
            isUnreadable: row.is_unreadable ?? false,
          },
  };
}

async function listSubscribed(client: PoolClient, agentId: string, after: string): Promise<string[]> {
  const rows = await run<{ conn_id: string }>(client, LIST_SUBSCRIBED, [agentId, after, MAX_CONNECTIONS]);
  return rows.map(({ conn_id }) => conn_id);
}

interface ConnectionRow extends AddressRow {
  conn_id: string;
  user_id: number;
  is_enabled: boolean;
  is_deleted: boolean;
  ntf_id: string | null;
  smp_host: string | null;
  smp_port: number | null;
  smp_ntf_id: string | null;
  /** null: there is no record. */
  ntf_host: string | null;
  ntf_port: number | null;
  ntf_action: string | null;
  smp_action: string | null;
  is_unreadable: boolean | null;
}

const LOAD_CONNECTIONS = {
  name: 'load_connections_of_command',
  text: `
    SELECT connection.conn_id, connection.user_id, connection.enable_ntfs IS NOT FALSE AS is_enabled, connection.is_deleted,
           queue.host, queue.port, queue.key_hash, queue.ntf_id,
           record.smp_host, record.smp_port, record.smp_ntf_id, record.ntf_host, record.ntf_port, record.ntf_action,
           record.smp_action, record.ntf_failed OR record.smp_failed AS is_unreadable
      FROM subscriptions.connections AS connection
     CROSS JOIN LATERAL (${queueOf('connection')}) AS queue
      LEFT JOIN subscriptions.ntf_subscriptions AS record USING (agent_id, conn_id)
     WHERE connection.agent_id = $1 AND connection.conn_id = ANY($2::text[])
       AND (NOT connection.is_deleted OR $3)
     ORDER BY connection.conn_id`,
};

const LIST_SUBSCRIBED = {
  name: 'list_subscribed_connections',
  text: `
    SELECT conn_id
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id > $2 AND NOT is_deleted AND enable_ntfs IS NOT FALSE
     ORDER BY conn_id
     LIMIT $3`,
};

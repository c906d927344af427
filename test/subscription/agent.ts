/** The service with the role subscription and its own routers. */
import { randomBytes } from 'node:crypto';
import { generateAuthKeys } from '../../activities/subscription/router/keys.ts';
import type { DeviceToken, RouterAddress } from '../../activities/subscription/router/ports.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';
import { createKeyBox } from '../../api/key-box.ts';
import { createSubscriptionCommands } from '../../activities/subscription/commands.ts';
import { OperationFailedError, createOperator } from '../../client/operator.ts';
import { createLogger } from '../../workers/logger.ts';
import type { Service } from '../../workers/service.ts';
import type { WorkerPool, PoolWorkerState, SupervisorState } from '../../workflows/subscription/contract.ts';
import {
  SUBSCRIPTION_STATE_QUERY,
  SUBSCRIPTION_TASK_QUEUE,
  poolWorkerWorkflowId,
  supervisorWorkflowId,
  tokenWorkflowId,
} from '../../workflows/subscription/contract.ts';
import { reconciliationScheduleId } from '../../workflows/recovery-contract.ts';
import { createCrashWalk } from '../crash-walk.ts';
import { newDevice } from './router-agent.ts';
import type { WantedQueue } from '../../dev/stand-ins/subscription/queues.ts';
import { importNewQueues } from '../../dev/stand-ins/subscription/queues.ts';
import { pushesTo, startRouters } from './routers.ts';
import type { Slot } from '../harness.ts';
import { eventually, resourcesOf, takeSlot } from '../harness.ts';
import { ofTests } from '../of-tests.ts';
import { reconcile } from '../reconcile.ts';

export const AGENT = 'default';
export const SWEEP_SCHEDULE_ID = reconciliationScheduleId(SUBSCRIPTION_TASK_QUEUE);
const KEY = randomBytes(32);
const DEADLOCK = '40P01';
export const KEY_BOX = createKeyBox([{ id: 'test', key: KEY }]);

/** Retries come soon, and nothing else gets in the way of a test. */
export const QUICK: Record<string, string> = {
  NOTIFICATION_ROLES: 'subscription',
  NOTIFICATION_SUBSCRIPTION_KEYS: `test:${KEY.toString('base64')}`,
  NOTIFICATION_SUBSCRIPTION_RETRY: '50ms,500ms',
  // Sweeps are five times as far apart, and look twice as far ahead: less than a day.
  NOTIFICATION_RECONCILIATION_INTERVAL: '72m',
};

/** What tests look at in the row of a record. */
export interface RecordRow {
  conn_id: string;
  smp_ntf_id: string | null;
  ntf_sub_id: string | null;
  status: string;
  ntf_action: string | null;
  smp_action: string | null;
  /** Epoch ms. */
  action_ms: number | null;
  smp_failed: boolean;
}

/** Its subscription is there, and waits for its check. */
export const isCreated = (record: RecordRow | undefined): boolean =>
  record?.status.startsWith('CREATED ') === true && record.ntf_action === 'C';

/** A queue, as its row has it. */
export interface QueueRow {
  conn_id: string;
  host: string;
  port: number;
  server_key_hash: string | null;
  rcv_id: string;
  rcv_private_key: Buffer;
  ntf_id: string | null;
  ntf_private_key: Buffer | null;
  rcv_ntf_dh_secret: Buffer | null;
}

/** What tests look at in the row of a token. */
interface TokenRow {
  port: number;
  token_id: string | null;
  status: string;
  action: string | null;
  mode: string | null;
}

/** An event, as its row has it. */
interface EventRow {
  kind: string;
  errors: { connId: string; error: string }[];
  offers_restart: boolean;
}

export type SubscriptionAgent = Awaited<ReturnType<typeof takeSubscriptionAgent>>;
export type Tokens = ReturnType<SubscriptionAgent['tokensOf']>;

/** The agent of a file of tests. */
export const agentOfTests = (options?: Parameters<typeof takeSubscriptionAgent>[0]): SubscriptionAgent =>
  ofTests(
    () => takeSubscriptionAgent(options),
    (agent) => agent.release(),
  );

/** Processes of the agents of a file of tests, to die one after the other. @param env beside what the first router needs. */
export const crashWalkOfAgents = (
  agent: Pick<SubscriptionAgent, 'slot' | 'routers' | 'env'>,
  env: Record<string, string> = {},
) =>
  ofTests(
    () =>
      createCrashWalk(agent.slot, {
        ...agent.env,
        NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(agent.routers.ntf[0]!.address, 'ntf'),
        NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '30s',
        ...env,
      }),
    (walk) => walk.release(),
  );

/** As `crashWalkOfAgents`, with connections of the agent with which nothing has been done yet: `next` takes one. */
export function crashWalkOfConnections(agent: SubscriptionAgent, count: number, interval: string) {
  const walk = crashWalkOfAgents(agent, { NOTIFICATION_RECONCILIATION_INTERVAL: interval });
  const untouched: string[] = [];
  beforeAll(async () => {
    await walk.survivor();
    await agent.activateToken();
    untouched.push(...(await agent.createMany(count)));
    await agent.active(undefined, 120_000);
  }, 180_000);
  return { walk, next: () => untouched.shift()! };
}

/** Starts routers, and takes a slot unless it is given one, which its owner releases; the service is started by `start`. */
export async function takeSubscriptionAgent(given: { slot?: Slot; smp?: number; ntf?: number } = {}) {
  const { smp = 1, ntf = 1 } = given;
  const slot: Slot = given.slot ?? (await takeSlot());
  const routers = await startRouters({ smp, ntf });
  const { workflow: workflows } = slot.client;
  const supervisor = workflows.getHandle(supervisorWorkflowId(AGENT));
  const commands = createSubscriptionCommands({ workflows, log: createLogger('silent') });

  const rows = async <Row>(sql: string, values: unknown[] = []): Promise<Row[]> => {
    try {
      return (await slot.db.query(sql, values)).rows as Row[];
    } catch (error) {
      // A service locks the same rows, in another order: as its own transactions, once more.
      if ((error as { code?: string }).code === DEADLOCK) return rows(sql, values);
      throw error;
    }
  };

  const records = (): Promise<RecordRow[]> =>
    rows<RecordRow>(`
      SELECT *, round(extract(epoch FROM action_ts) * 1000)::float8 AS action_ms
        FROM subscriptions.ntf_subscriptions ORDER BY conn_id`);

  const operator = (agentId = AGENT) =>
    createOperator({ ...resourcesOf(slot), agentId, keyBox: () => KEY_BOX });

  /** The token of an agent, and a new device for it; tests that share a service have an agent each. */
  function tokensOf(agentId = AGENT) {
    return {
      ...operator(agentId).tokens,
      agentId,
      device: newDevice(),
      async row(): Promise<TokenRow | undefined> {
        const [row] = await rows<TokenRow>('SELECT * FROM subscriptions.ntf_tokens WHERE agent_id = $1', [
          agentId,
        ]);
        return row;
      },
      /** Where its router listens. */
      async router() {
        const row = await this.row();
        return routers.ntf.find(({ address }) => address.port === row?.port)!;
      },
      handle: slot.client.workflow.getHandle(tokenWorkflowId(agentId)),
    };
  }

  /** The content of a verification push; of so many, the one at `at`. */
  async function verification(device: DeviceToken, count = 1, at = count - 1) {
    const pushes = await eventually(`${count} verification pushes`, async () => {
      const all = pushesTo(routers.sink, device.token, 'verification');
      return all.length >= count && all;
    });
    const { nonce = '', verification: code = '' } = pushes[at]!.data;
    return { nonce, code };
  }

  /** Registers and verifies. */
  async function activate(
    tokens: ReturnType<typeof tokensOf>,
    mode: 'PERIODIC' | 'INSTANT' = 'PERIODIC',
    device = tokens.device,
  ): Promise<void> {
    const before = pushesTo(routers.sink, device.token, 'verification').length;
    await tokens.register(device, mode);
    const status = await tokens.verify(device, await verification(device, before + 1));
    expect(status).toBe('ACTIVE');
  }

  /** An application makes queues, and hands them over. */
  async function create(connections: readonly WantedQueue[], agentId = AGENT): Promise<string[]> {
    return importNewQueues(operator(agentId).subscriptions, connections);
  }

  return {
    slot,
    routers,
    supervisor,
    rows,
    records,
    env: QUICK,
    /** @param ntfServers default: all. */
    async start(
      env: Record<string, string> = {},
      ntfServers: readonly RouterAddress[] = routers.ntf.map(({ address }) => address),
    ): Promise<Service> {
      const service = await slot.startService({ ...QUICK, ...env }, { ntfServers });
      // It would sweep at fixed times of day. Tests that need a sweep ask for it.
      await slot.client.schedule.getHandle(SWEEP_SCHEDULE_ID).pause();
      return service;
    },

    /** Starts the service, and activates a token with instant notifications. */
    async startActive(env?: Record<string, string>): Promise<void> {
      await this.start(env);
      await this.activateToken();
    },

    setToken: (status: string, mode: string | null = 'INSTANT') =>
      rows('UPDATE subscriptions.ntf_tokens SET status = $1, mode = $2, updated_at = clock_timestamp()', [
        status,
        mode,
      ]),

    /** Tokens of the agent that are to be deleted on a notification router. @param days since that was asked for. */
    insertDeletions: (tokenIds: string[], { host, port, keyHash }: RouterAddress, days = 0) =>
      rows(
        `INSERT INTO subscriptions.ntf_tokens_to_delete
                (agent_id, host, port, key_hash, token_id, private_key, created_at)
         SELECT $1, $2, $3, $4, id, key, now() - $5 * interval '1 day'
           FROM unnest($6::text[], $7::bytea[]) AS token (id, key)`,
        [
          ...[AGENT, host, port, keyHash, days, tokenIds],
          tokenIds.map((id) =>
            KEY_BOX.seal(generateAuthKeys().privateKey, `ntf_tokens_to_delete.private_key:${AGENT}/${id}`),
          ),
        ],
      ),

    tokensOf,
    verification,
    activate,

    /** The token of an agent, for a new device: registered, which a code has been pushed for. */
    async registered(agentId: string) {
      const tokens = tokensOf(agentId);
      await tokens.register(tokens.device);
      return tokens;
    },

    /** As `registered`, and verified. */
    async activated(agentId: string) {
      const tokens = tokensOf(agentId);
      await activate(tokens);
      return tokens;
    },

    /** Registers and verifies a token of a new device, with instant notifications. */
    activateToken: (agentId = AGENT) => activate(tokensOf(agentId), 'INSTANT'),

    create,

    /** Connections of a user whose subscriptions are created, and which no command is under way for. */
    async createActive(count = 1, server = routers.smp[0]!.address, userId = 1): Promise<string[]> {
      const connIds = await create(Array.from({ length: count }, () => ({ userId, server })));
      await this.active(connIds);
      await this.idle();
      return connIds;
    },

    /** Connections spread over the messaging routers, and over two users. */
    createMany: (count: number, agentId = AGENT) =>
      create(
        Array.from({ length: count }, (_, index) => ({
          userId: 1 + (index % 2),
          server: routers.smp[index % routers.smp.length]!.address,
        })),
        agentId,
      ),

    operator,

    /** A command that looks at no gate; default: for all connections. */
    command: (connIds?: readonly string[]): Promise<void> => commands.reconcile(AGENT, connIds),

    /** A separate sweep: one that the schedule is asked for while another runs is left out. */
    sweep: () => reconcile(slot, SUBSCRIPTION_TASK_QUEUE),

    toggle: (connIds: readonly string[], enable: boolean, agentId = AGENT) =>
      operator(agentId).subscriptions.toggle(connIds, enable),

    remove: (connIds: readonly string[], agentId = AGENT) => operator(agentId).subscriptions.delete(connIds),

    update: <Result>(name: string): Promise<Result> => supervisor.executeUpdate<Result, []>(name),

    state: (): Promise<SupervisorState> => supervisor.query<SupervisorState>(SUBSCRIPTION_STATE_QUERY),

    worker: (pool: WorkerPool, { host, port }: RouterAddress) =>
      slot.client.workflow.getHandle(poolWorkerWorkflowId({ agentId: AGENT, pool, server: { host, port } })),

    workerState(pool: WorkerPool, address: RouterAddress): Promise<PoolWorkerState> {
      return this.worker(pool, address).query<PoolWorkerState>(SUBSCRIPTION_STATE_QUERY);
    },

    async record(connId: string): Promise<RecordRow | undefined> {
      return (await records()).find((row) => row.conn_id === connId);
    },

    gone: (connId: string) =>
      eventually('the record to go', async () => !(await records()).some((row) => row.conn_id === connId)),

    /** Connections that are being deleted. */
    deleting: async (): Promise<string[]> =>
      (await rows<{ conn_id: string }>('SELECT conn_id FROM subscriptions.connections WHERE is_deleted')).map(
        ({ conn_id }) => conn_id,
      ),

    /** The queue of a connection: its row, and what its router has. */
    async queueOf(connId: string) {
      const [row] = await rows<QueueRow>('SELECT * FROM subscriptions.rcv_queues WHERE conn_id = $1', [
        connId,
      ]);
      const stored = routers.smp
        .flatMap((router) => router.queues())
        .find(({ recipientId }) => recipientId === row!.rcv_id);
      return { ...row!, stored };
    },

    /** Waits until every one of these (default: every connection that is not deleted) has a subscription. */
    active: (connIds?: readonly string[], limitMs?: number): Promise<RecordRow[]> =>
      eventually(
        'all subscriptions to be created',
        async () => {
          const all = await records();
          const switchedOn = () =>
            rows<{ conn_id: string }>(
              'SELECT conn_id FROM subscriptions.connections WHERE NOT is_deleted AND enable_ntfs IS NOT FALSE',
            );
          const wanted = connIds ?? (await switchedOn()).map(({ conn_id }) => conn_id);
          const created = new Set(all.filter(isCreated).map(({ conn_id }) => conn_id));
          const missing = wanted.filter((connId) => !created.has(connId));
          if (missing.length === 0) return all;
          const row = all.find(({ conn_id }) => conn_id === missing[0]);
          throw new Error(`${missing.length} of ${wanted.length} are not, such as ${JSON.stringify(row)}`);
        },
        limitMs,
      ),

    events: (): Promise<EventRow[]> =>
      rows<EventRow>('SELECT kind, errors, offers_restart FROM subscriptions.events ORDER BY event_id'),

    /** Waits until every command that was given is carried out. */
    idle: (): Promise<SupervisorState> =>
      eventually('the supervisor to be idle', async () => {
        const state = await supervisor.query<SupervisorState>(SUBSCRIPTION_STATE_QUERY);
        return state.queue.length === 0 && !state.current && state;
      }),

    async release(): Promise<void> {
      if (!given.slot) await slot.release();
      await routers.stop();
    },
  };
}

/** Source and code of the error that an operation ends with. */
export async function errorOf(operation: Promise<unknown>): Promise<string> {
  try {
    return `no error but ${JSON.stringify(await operation)}`;
  } catch (error) {
    if (!(error instanceof OperationFailedError)) throw error;
    return error.message.split(': ')[0]!;
  }
}

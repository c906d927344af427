/**
 * The workflows that keep an agent's notification subscriptions, and what their callers agree on: one supervisor for
 * each agent, and one worker for each server of a pool that has something to do. Pure, so that clients and the workflow
 * sandbox can both import it.
 */
import type { Deaths, ListKind, RetryPace, RetryState, ServerKey, WorkList } from './rules.ts';

export const SUBSCRIPTION_TASK_QUEUE = 'subscription';

export const SUPERVISOR_WORKFLOW = 'subscriptionSupervisor';
export const POOL_WORKER_WORKFLOW = 'subscriptionWorker';

/**
 * `ntf-smp` makes and removes notifier credentials on a messaging router, `ntf-ntf` makes and checks subscriptions on a
 * notification router, `ntf-tkn-del` deletes tokens there.
 */
export const WORKER_POOLS = ['ntf-smp', 'ntf-ntf', 'ntf-tkn-del'] as const;
export type WorkerPool = (typeof WORKER_POOLS)[number];

export const supervisorWorkflowId = (agentId: string): string => `subscription/${agentId}`;

export const poolWorkerWorkflowId = ({ agentId, pool, server }: WorkerKey): string =>
  `subscription/${agentId}/${pool}/${server.host}:${server.port}`;

/** At most one worker runs for each. */
export interface WorkerKey {
  agentId: string;
  pool: WorkerPool;
  server: ServerKey;
}

// --- Supervisor: signals -----------------------------------------------------------------------------------------

/**
 * Signal, argument: ids of at most MAX_CONNECTIONS connections; without it all of the agent. Makes the subscriptions that
 * rows and token want, starts those over that were given up, and ends those that are not wanted. To be sent by
 * signal-with-start, once the rows say so; a sender for single connections looks at the instant gate first.
 */
export const RECONCILE_SIGNAL = 'reconcile';
/** 12 bytes as base64url, or the ids that other programs have given to theirs. */
export const CONNECTION_ID = /^[A-Za-z0-9_.:=-]{1,64}$/;
/** Most connections that one signal names; more go in several. */
export const MAX_CONNECTIONS = 500;
/**
 * Connections that the commands that wait may name, since a run hands them to the next one, whose input is limited. More make
 * one command for all.
 */
export const MAX_WAITING_CONNECTIONS = 16_000;

/** What a signal asks for. */
export interface Command {
  /** Absent: all of the agent. */
  connIds?: string[];
}

/** @returns the arguments of the signals about these connections, default: of the one about all. */
export function signalsAbout(connIds?: readonly string[]): [string[]?][] {
  if (!connIds) return [[]];
  return Array.from({ length: Math.ceil(connIds.length / MAX_CONNECTIONS) }, (_, page) => [
    connIds.slice(page * MAX_CONNECTIONS, (page + 1) * MAX_CONNECTIONS),
  ]);
}

/** How a supervisor is started. */
export const supervisorOf = (agentId: string) => ({
  workflowType: SUPERVISOR_WORKFLOW,
  workflowId: supervisorWorkflowId(agentId),
  taskQueue: SUBSCRIPTION_TASK_QUEUE,
  args: [agentId],
  staticSummary: `subscriptions of ${agentId}`,
});

// --- Supervisor: updates and query -------------------------------------------------------------------------------

/**
 * Update, argument: the address of a router (`smp://…`, `ntf://…`), returns nothing. Pins the router, once it has answered under
 * this fingerprint, a messaging router for all its queues, a notification router for the token and the token deletions there.
 */
export const TRUST_ROUTER_UPDATE = 'trustRouter';
/** Updates without argument, return `AgentState`: ends all work of the agent immediately; begins it again. */
export const CLOSE_UPDATE = 'close';
export const OPEN_UPDATE = 'open';
/** Query of the supervisor, returns `SupervisorState`; of a worker, `PoolWorkerState`. */
export const SUBSCRIPTION_STATE_QUERY = 'state';

export interface AgentState {
  /** Grows when the agent is closed or opened; work that was taken up under an older one is dropped. */
  epoch: number;
  isOpen: boolean;
}

/** A command for all connections is carried out page by page. */
export interface CommandUnderWay extends Command {
  /** The last connection that is done. */
  after?: string;
}

/** What a run of the supervisor hands to the next one. */
export interface SupervisorCarried {
  /** Commands that wait. */
  queue: Command[];
  /** The command under way, or of which pages are left. */
  current?: CommandUnderWay;
  /** Commands carried out since the workflow first started. */
  done: number;
}

export interface SupervisorState extends SupervisorCarried {
  agentId: string;
  isOpen: boolean;
}

// --- Workers -------------------------------------------------------------------------------------------------------

/**
 * Signal without argument: there may be something to do. To be sent by signal-with-start; sent by hand it does no harm.
 */
export const WORK_SIGNAL = 'work';
export interface PoolWorkerInput extends WorkerKey {
  /** Of the run before, when this one continues it. */
  carried?: CarriedWork;
}

/** What a run hands to the next one. */
export interface CarriedWork {
  epoch?: number;
  /** Lists of the round under way, the first one of them in retry. */
  round?: Round;
  retry?: RetryState;
  /** As the last claim has told. */
  pace?: RetryPace;
  deaths: Deaths;
}

/** What a pick-up has brought. */
export interface Round {
  /** Number of the pick-up; what another one has taken since is left alone. */
  claim: number;
  lists: WorkList[];
}

/** What a batch activity is asked to do. */
export interface BatchOrder extends WorkerKey {
  epoch: number;
  claim: number;
  kind: ListKind;
  ids: string[];
  /** Epoch ms, the workflow's. */
  nowMs: number;
}

export interface BatchResult {
  /** Failed for now. */
  retryIds: string[];
}

export interface ClaimOrder extends WorkerKey {
  /** Absent in the first claim of a worker. */
  epoch?: number;
  nowMs: number;
}

export type ClaimResult =
  /** The agent was closed: there is nothing for this worker any more. */
  | { isClosed: true }
  | {
      isClosed: false;
      epoch: number;
      claim: number;
      items: { id: string; kind: ListKind }[];
      /** When there are no items: the earliest that will be due, epoch ms. */
      nextDueMs?: number;
      pace: RetryPace;
    };

export interface PoolWorkerState extends WorkerKey {
  doing: 'claiming' | 'working' | 'retrying' | 'waiting';
  /** Of the list under way. */
  kind?: ListKind;
  remaining: number;
  attempt: number;
  /** When a wait ends by itself, epoch ms. */
  nextDueMs?: number;
}

// --- Token ---------------------------------------------------------------------------------------------------------

export const TOKEN_WORKFLOW = 'subscriptionToken';

export const tokenWorkflowId = (agentId: string): string => `${supervisorWorkflowId(agentId)}/token`;

/**
 * Updates, each with a `TokenRequest` of the same kind as argument and a `TokenResult` as result; to be sent by
 * update-with-start, since the workflow ends when there is nothing left to do.
 *
 * `register` makes the token known to a notification router, as far as it is not, or takes it over to another device;
 * it also sets the mode. `verify` ends the registration with the code that was pushed to the device. `check` asks the
 * router how the token stands. `delete` forgets it, and has the router do the same.
 */
export type TokenUpdate = 'register' | 'verify' | 'check' | 'delete';

export interface TokenRequest {
  /** A UUID, the key of the row. */
  requestId: string;
}

/** `PERIODIC`: the device is told to look for messages now and then. `INSTANT`: there is a push for each. */
export type TokenMode = 'PERIODIC' | 'INSTANT';

export interface TokenError {
  /** `NTF` is an answer of the router, `BROKER` concerns the way to it, `AGENT` and `STORE` this side. */
  source: string;
  /** `AUTH`, `TIMEOUT`, `PROHIBITED` … */
  code: string;
  detail?: string;
}

export type TokenResult =
  /** The token's status as it is now known; absent after `delete`. */
  { ok: true; status?: string } | { ok: false; error: TokenError };

/**
 * The supervisor of an agent's notification subscriptions, one for each agent, for good. It carries out commands one
 * at a time, in the order in which they came. A command is one transaction a page and the waking of workers, so that no
 * command waits for a router. Operators change connections through updates; one that waits for a router keeps no other waiting.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> idle: workers of what is due are woken
 *   idle --> applying: a command
 *   applying --> idle
 *   idle --> closed: close
 *   closed --> idle: open
 * ```
 */
import {
  ActivityFailure,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  defineUpdate,
  isCancellation,
  log,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
  ApplicationFailure,
} from '@temporalio/workflow';
import type { Changed } from '../../activities/subscription/connections.ts';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import { inOrder, isHistoryLong, onRenewal, refuse } from '../long-lived.ts';
import { DATABASE, DATABASE_AT_ONCE, SUBSCRIPTION_BATCH } from '../policies.ts';
import type {
  AgentState,
  Command,
  CommandUnderWay,
  ConnectionList,
  DeletedConnections,
  ImportConnections,
  ImportedConnection,
  RetryConnections,
  SupervisorCarried,
  SupervisorState,
  ToggleConnections,
  ToggledConnections,
  TrustedRouter,
} from './contract.ts';
import {
  afterFlush,
  enqueue,
  isFull,
  checkRequestId,
  checkList,
  checkRetry,
  checkToggle,
  isCommand,
  checkTrust,
} from './requests.ts';
import * as contract from './contract.ts';
import { SUBSCRIPTION_REFUSED } from '../failures.ts';

const database = proxyActivities<SubscriptionActivities>(DATABASE);
const atOnce = proxyLocalActivities<SubscriptionActivities>(DATABASE_AT_ONCE);
const routers = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);

/** Events after which a run is continued by a new one: what came in must be read again by the next worker. */
const LONG_HISTORY = 400;

/** What a run of a supervisor knows. */
interface Supervisor {
  agentId: string;
  /** Commands that wait. */
  queue: Command[];
  /** The command under way, or of which pages are left. */
  current?: CommandUnderWay;
  /** Commands carried out since the workflow first started. */
  done: number;
  /** Absent until it is loaded. */
  agent?: AgentState;
  /** Changes are made one at a time, in the order in which they were asked for. */
  oneAtATime: ReturnType<typeof inOrder>;
  /** A new run was asked for. */
  isRenewed: () => boolean;
}

/** Runs for good. `carried` is what the run before has left, when this one continues it. */
export async function subscriptionSupervisor(agentId: string, carried?: SupervisorCarried): Promise<void> {
  const { queue = [], current, done = 0 } = carried ?? {};
  const supervisor: Supervisor = {
    ...{ agentId, queue, done, oneAtATime: inOrder() },
    isRenewed: onRenewal(),
  };
  if (current) supervisor.current = current;

  setHandler(defineQuery<SupervisorState>(contract.SUBSCRIPTION_STATE_QUERY), () => stateOf(supervisor));
  handleSignals(supervisor);
  handleConnectionUpdates(supervisor);
  handleAgentUpdates(supervisor);

  const agent = await database.loadAgentState(agentId);
  supervisor.agent = agent;
  if (agent.isOpen) await database.kickDue(agentId, Date.now());

  for (;;) {
    showDetails(supervisor);
    await condition(() => isQuiet(supervisor) || hasWork(supervisor));
    if (isQuiet(supervisor)) await continueInNewRun(supervisor);
    // Between two pages there is room for everything else.
    if (hasWork(supervisor)) await carryOutPage(supervisor);
  }
}

function hasWork({ agent, queue, current }: Supervisor): boolean {
  return agent?.isOpen === true && (queue.length > 0 || current !== undefined);
}

/** Whether the run is to be continued by a new one. */
const isOver = ({ isRenewed }: Supervisor): boolean => isRenewed() || isHistoryLong(LONG_HISTORY);

/**
 * Whether it can be, since no update is under way. Updates may overlap without end, so those that come once it is over do
 * their work within the task that brings them (`databaseOf`): at its end none of them is open.
 */
const isQuiet = (supervisor: Supervisor): boolean => isOver(supervisor) && allHandlersFinished();

/** Carries a page of a command out. A command that cannot be carried out is reported, and the next one is taken. */
async function carryOutPage(supervisor: Supervisor): Promise<void> {
  const { agentId, queue } = supervisor;
  const command = (supervisor.current ??= queue.shift()!);
  showDetails(supervisor);
  const next = await nextAfter(agentId, command);
  if (next !== undefined) supervisor.current = { ...command, after: next };
  else {
    delete supervisor.current;
    supervisor.done += 1;
  }
}

/** @returns where the next page of the command begins, if there is one. */
async function nextAfter(agentId: string, command: CommandUnderWay): Promise<string | undefined> {
  try {
    return (await database.applyCommand({ agentId, ...command, nowMs: Date.now() })).next;
  } catch (error) {
    if (isCancellation(error)) throw error;
    const reason = `${command.kind}: ${reasonIn(error)}`;
    await database.reportError({ agentId, kind: 'ERR INTERNAL', error: reason });
    return undefined;
  }
}

async function continueInNewRun({ agentId, queue, current, done }: Supervisor): Promise<void> {
  await continueAsNew<typeof subscriptionSupervisor>(agentId, {
    queue,
    ...(current === undefined ? {} : { current }),
    done,
  });
}

type Database = typeof database | typeof atOnce;

/** The activities of updates. */
function databaseOf(supervisor: Supervisor): Database {
  return isOver(supervisor) ? atOnce : database;
}

function stateOf({ agentId, queue, current, done, agent }: Supervisor): SupervisorState {
  return { agentId, queue, ...(current ? { current } : {}), done, isOpen: agent?.isOpen ?? true };
}

function showDetails({ agent, queue, current, done }: Supervisor): void {
  const how = agent && !agent.isOpen ? 'closed' : 'open';
  const now = current ? `; ${current.kind} under way` : '';
  setCurrentDetails(`${how}; ${queue.length} commands wait, ${done} were carried out${now}`);
}

// --- Signals -----------------------------------------------------------------------------------------------------

function handleSignals(supervisor: Supervisor): void {
  const { queue } = supervisor;
  setHandler(
    defineSignal<[Command]>(contract.COMMAND_SIGNAL),
    (command) => {
      if (!isCommand(command)) return log.warn('a command was not understood');
      // Without anything else that was sent with it.
      const { kind, connIds } = command;
      addCommands(queue, [{ kind, ...(connIds === undefined ? {} : { connIds }) }]);
    },
    { description: 'Has something done about connections. {kind, connIds?}' },
  );
  setHandler(
    defineSignal(contract.FLUSH_AND_SMP_DELETE_SIGNAL),
    () => void queue.splice(0, queue.length, ...afterFlush(queue), { kind: 'smp-delete' }),
    { description: 'Forgets creates and deletes that wait, then ends all subscriptions.' },
  );
}

// --- Updates of connections --------------------------------------------------------------------------------------

function handleConnectionUpdates(supervisor: Supervisor): void {
  const { agentId, queue, oneAtATime } = supervisor;

  /** Takes an update about connections, and queues the commands that follow from it. Signals cannot be refused, but updates can. */
  function onUpdate<Result, Request>(
    name: string,
    description: string,
    check: (request: Request) => void,
    change: (activities: Database, request: Request) => Promise<Changed<Result> | string>,
  ): void {
    setHandler(
      defineUpdate<Result, [Request]>(name),
      async (request) => {
        await untilLoaded(supervisor);
        const changed = await oneAtATime(() => change(databaseOf(supervisor), request));
        if (typeof changed === 'string') fail(changed);
        addCommands(queue, changed.commands);
        return changed.result;
      },
      {
        validator(request: Request) {
          if (isFull(queue)) refuse('too many commands wait; try again later');
          check(request);
        },
        description,
      },
    );
  }

  onUpdate<ToggledConnections, ToggleConnections>(
    contract.TOGGLE_CONNECTIONS_UPDATE,
    'Switches notifications of connections. {connIds, enable}',
    checkToggle,
    (activities, request) => activities.toggleConnections(agentId, request),
  );
  onUpdate<DeletedConnections, ConnectionList>(
    contract.DELETE_CONNECTIONS_UPDATE,
    'Deletes connections and their subscriptions. {connIds}',
    checkList,
    (activities, { connIds }) => activities.deleteConnections(agentId, connIds),
  );
  onUpdate<void, RetryConnections>(
    contract.RETRY_CONNECTIONS_UPDATE,
    'Starts over what was given up. {connIds?}',
    checkRetry,
    async (_, { connIds }) => ({
      result: undefined,
      commands: [{ kind: 'reconcile', ...(connIds ? { connIds } : {}) }],
    }),
  );
  onUpdate<ImportedConnection[], ImportConnections>(
    contract.IMPORT_CONNECTIONS_UPDATE,
    'Takes queues over that exist already. {requestId} of subscriptions.requests',
    checkRequestId,
    (activities, { requestId }) => activities.importConnections(agentId, requestId),
  );
}

function addCommands(queue: Command[], commands: readonly Command[]): void {
  for (const command of commands) enqueue(queue, command);
}

async function untilLoaded(supervisor: Supervisor): Promise<void> {
  await condition(() => supervisor.agent !== undefined);
}

// --- Updates of the agent ----------------------------------------------------------------------------------------

function handleAgentUpdates(supervisor: Supervisor): void {
  const { agentId } = supervisor;
  setHandler(defineUpdate<AgentState, []>(contract.CLOSE_UPDATE), () => setOpen(supervisor, false), {
    description: 'Ends all work of the agent until it is opened again.',
  });
  setHandler(
    defineUpdate<AgentState, []>(contract.OPEN_UPDATE),
    async () => {
      const opened = await setOpen(supervisor, true);
      return { ...opened, workers: await databaseOf(supervisor).kickDue(agentId, Date.now()) };
    },
    { description: 'Lets the agent work, and wakes a worker for everything that is due.' },
  );
  setHandler(
    defineUpdate<AgentState, []>(contract.REPLAY_UPDATE),
    async () => {
      const workers = await databaseOf(supervisor).kickDue(agentId, Date.now());
      return { ...(await databaseOf(supervisor).loadAgentState(agentId)), workers };
    },
    { description: 'Wakes a worker for everything that is due.' },
  );
  setHandler(
    defineUpdate<void, [TrustedRouter]>(contract.TRUST_ROUTER_UPDATE),
    async (router) => {
      const refusal = await routers.trustRouter(agentId, router);
      if (refusal !== undefined) fail(refusal);
    },
    {
      validator: checkTrust,
      description: 'Pins a router to another fingerprint. {protocol, host, port, keyHash}',
    },
  );
}

async function setOpen(supervisor: Supervisor, isOpen: boolean): Promise<AgentState> {
  const { agentId, oneAtATime } = supervisor;
  await untilLoaded(supervisor);
  const agent = await oneAtATime(() => databaseOf(supervisor).setOpen(agentId, isOpen));
  supervisor.agent = agent;
  return agent;
}

function reasonIn(error: unknown): string {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

/** Ends an update, but not the supervisor. */
function fail(message: string): never {
  throw ApplicationFailure.nonRetryable(message, SUBSCRIPTION_REFUSED);
}

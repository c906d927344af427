/**
 * The supervisor of an agent's notification subscriptions, one for each agent, for good. It carries out commands one
 * at a time, in the order in which they came. A command is one transaction and the waking of workers, so that no
 * command waits for a router. Operators change connections through updates.
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
  ApplicationFailure,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  defineUpdate,
  isCancellation,
  log,
  patched,
  proxyActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { Changed } from '../../activities/subscription/connections.ts';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import { SUBSCRIPTION_REFUSED } from '../failures.ts';
import { inOrder, isHistoryLong, refuse } from '../long-lived.ts';
import { DATABASE, SUBSCRIPTION_BATCH, SUBSCRIPTION_SWEEP } from '../policies.ts';
import type {
  AgentState,
  Command,
  ConnectionList,
  ConnectionsSubscribed,
  CreateConnections,
  CreatedConnection,
  DeletedConnections,
  FlushRequest,
  ImportConnections,
  RotateQueue,
  RotatedQueue,
  Suspension,
  SupervisorCarried,
  SupervisorState,
  SweepOutcome,
  ToggleConnections,
  ToggledConnections,
  TrustRouter,
} from './contract.ts';
import { afterFlush, enqueue, isFull } from './command-queue.ts';
import * as contract from './contract.ts';
import {
  checkCreate,
  checkImport,
  checkList,
  checkRotation,
  checkSubscribed,
  checkToggle,
  checkTrust,
  isCommand,
  isFlushRequest,
} from './requests.ts';

const database = proxyActivities<SubscriptionActivities>(DATABASE);
const routers = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);
const sweeping = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_SWEEP);

/** Events after which a run is continued by a new one: what came in must be read again by the next worker. */
const LONG_HISTORY = 400;

const CONNECTION_ID_LENGTH = 16;
const ALPHANUMERIC = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
const BASE64URL = `${ALPHANUMERIC}-_`;

/** What a run of a supervisor knows. */
interface Supervisor {
  agentId: string;
  /** Commands that wait. */
  queue: Command[];
  /** The command under way. */
  current?: Command;
  /** Commands carried out since the workflow first started. */
  done: number;
  /** Absent until it is loaded. */
  agent?: AgentState;
  /** A change of the suspension that was asked for and not made yet. */
  wanted?: Suspension;
  /** Changes are made one at a time, in the order in which they were asked for. */
  oneAtATime: ReturnType<typeof inOrder>;
}

/** Runs for good. `carried` is what the run before has left, when this one continues it. */
export async function subscriptionSupervisor(agentId: string, carried?: SupervisorCarried): Promise<void> {
  const { queue = [], done = 0, wanted } = carried ?? {};
  const supervisor: Supervisor = { agentId, queue, done, oneAtATime: inOrder() };
  if (wanted) supervisor.wanted = wanted;

  setHandler(defineQuery<SupervisorState>(contract.SUBSCRIPTION_STATE_QUERY), () => stateOf(supervisor));
  handleSignals(supervisor);
  handleConnectionUpdates(supervisor);
  handleAgentUpdates(supervisor);

  const agent = await database.loadAgentState(agentId);
  supervisor.agent = agent;
  if (agent.isOpen) await database.kickDue(agentId, Date.now());

  for (;;) {
    showDetails(supervisor);
    await condition(
      () => isHistoryLong(LONG_HISTORY) || supervisor.wanted !== undefined || hasWork(supervisor),
    );
    if (isHistoryLong(LONG_HISTORY)) await continueInNewRun(supervisor);
    if (supervisor.wanted) await applySuspension(supervisor, supervisor.wanted);
    if (hasWork(supervisor)) await carryOutNext(supervisor);
  }
}

function hasWork({ agent, queue }: Supervisor): boolean {
  return agent !== undefined && agent.isOpen && !agent.isPaused && queue.length > 0;
}

async function carryOutNext(supervisor: Supervisor): Promise<void> {
  const command = supervisor.queue.shift()!;
  supervisor.current = command;
  showDetails(supervisor);
  await carryOut(supervisor.agentId, command);
  delete supervisor.current;
  supervisor.done += 1;
}

/** Carries a command out, page by page. A command that cannot be carried out is reported, and the next one is taken. */
async function carryOut(agentId: string, command: Command): Promise<void> {
  try {
    let after: string | undefined;
    do {
      const order = { agentId, ...command, nowMs: Date.now(), ...(after === undefined ? {} : { after }) };
      const { next, unkicked } = await database.applyCommand(order);
      if (unkicked.length > 0) await database.kickWorkers(unkicked);
      after = next;
    } while (after !== undefined);
  } catch (error) {
    if (isCancellation(error)) throw error;
    await database.reportError({
      agentId,
      kind: 'ERR INTERNAL',
      error: `${command.kind}: ${reasonIn(error)}`,
    });
  }
}

async function applySuspension(supervisor: Supervisor, suspension: Suspension): Promise<void> {
  const { agentId, oneAtATime } = supervisor;
  supervisor.agent = await oneAtATime(() => database.suspend(agentId, suspension));
  // Unless another change came meanwhile.
  if (supervisor.wanted === suspension) delete supervisor.wanted;
}

async function continueInNewRun({ agentId, queue, done, wanted }: Supervisor): Promise<void> {
  await condition(allHandlersFinished);
  await continueAsNew<typeof subscriptionSupervisor>(agentId, {
    queue,
    done,
    ...(wanted === undefined ? {} : { wanted }),
  });
}

function stateOf({ agentId, queue, current, done, agent }: Supervisor): SupervisorState {
  const { isOpen = true, isPaused = false, isOnline = true } = agent ?? {};
  return { agentId, queue, ...(current ? { current } : {}), done, isOpen, isPaused, isOnline };
}

function showDetails({ agent, queue, current, done }: Supervisor): void {
  const how = agent && !agent.isOpen ? 'closed' : agent?.isPaused ? 'paused' : 'open';
  const now = current ? `; ${current.kind} under way` : '';
  setCurrentDetails(`${how}; ${queue.length} commands wait, ${done} were carried out${now}`);
}

// --- Signals -----------------------------------------------------------------------------------------------------

function handleSignals(supervisor: Supervisor): void {
  const { queue } = supervisor;
  setHandler(
    defineSignal<[Command]>(contract.COMMAND_SIGNAL),
    (command) => {
      if (isCommand(command)) addCommands(queue, [commandOf(command.kind, command)]);
      else log.warn('a command was not understood');
    },
    { description: 'Has something done about connections. {kind, connIds?}' },
  );
  setHandler(
    defineSignal<[FlushRequest]>(contract.FLUSH_AND_SMP_DELETE_SIGNAL),
    (request) => {
      if (!isFlushRequest(request)) return log.warn('a request to flush was not understood');
      const kept = areCommandsJoined()
        ? afterFlush(queue)
        : queue.filter(({ kind }) => kind === 'delete-sub');
      queue.splice(0, queue.length, ...kept, commandOf('smp-delete', request));
    },
    { description: 'Forgets creates and deletes that wait, then ends subscriptions. {connIds?}' },
  );
  setHandler(defineSignal(contract.PAUSE_SIGNAL), () => wantSuspension(supervisor, { isPaused: true }), {
    description: 'Leaves the network alone until resumed.',
  });
  setHandler(defineSignal(contract.RESUME_SIGNAL), () => wantSuspension(supervisor, { isPaused: false }), {
    description: 'Goes on after a pause.',
  });
  setHandler(
    defineSignal<[boolean]>(contract.ONLINE_SIGNAL),
    (isOnline) => wantSuspension(supervisor, { isOnline: isOnline !== false }),
    { description: 'Says whether there is a network. true or false' },
  );
}

function wantSuspension(supervisor: Supervisor, change: Partial<Suspension>): void {
  const { isPaused = false, isOnline = true } = supervisor.wanted ?? supervisor.agent ?? {};
  supervisor.wanted = { isPaused, isOnline, ...change };
}

// --- Updates of connections --------------------------------------------------------------------------------------

function handleConnectionUpdates(supervisor: Supervisor): void {
  const { agentId, queue, oneAtATime } = supervisor;

  /** Queues the commands that follow from a change. */
  const queueCommands = <Result>({ result, commands }: Changed<Result>): Result => {
    addCommands(queue, commands);
    return result;
  };
  /** Signals cannot be refused, but updates can. */
  const withRoomFor =
    <Request>(check: (request: Request) => void) =>
    (request: Request): void => {
      if (isFull(queue)) refuse('too many commands wait; try again later');
      check(request);
    };

  setHandler(
    defineUpdate<CreatedConnection[], [CreateConnections]>(contract.CREATE_CONNECTIONS_UPDATE),
    async ({ connections }) => {
      await untilLoaded(supervisor);
      requireOpen(supervisor);
      const orders = connections.map((connection) => ({ ...connection, connId: newConnectionId() }));
      return queueCommands(await routers.createConnections(agentId, orders, Date.now()));
    },
    {
      validator: withRoomFor(checkCreate),
      description: 'Makes connections. {connections: [{userId, server, enableNotifications?}]}',
    },
  );
  setHandler(
    defineUpdate<ToggledConnections, [ToggleConnections]>(contract.TOGGLE_CONNECTIONS_UPDATE),
    async (request) => {
      await untilLoaded(supervisor);
      return queueCommands(await oneAtATime(() => database.toggleConnections(agentId, request)));
    },
    {
      validator: withRoomFor(checkToggle),
      description: 'Switches notifications of connections. {connIds, enable}',
    },
  );
  setHandler(
    defineUpdate<ToggledConnections, [ConnectionsSubscribed]>(contract.CONNECTIONS_SUBSCRIBED_UPDATE),
    async (request) => {
      await untilLoaded(supervisor);
      return queueCommands(await oneAtATime(() => database.setSubscribed(agentId, request)));
    },
    {
      validator: withRoomFor(checkSubscribed),
      description: 'Notes which connections the agent receives from. {connIds, isSubscribed}',
    },
  );
  setHandler(
    defineUpdate<DeletedConnections, [ConnectionList]>(contract.DELETE_CONNECTIONS_UPDATE),
    async ({ connIds }) => {
      await untilLoaded(supervisor);
      const result = queueCommands(await oneAtATime(() => database.deleteConnections(agentId, connIds)));
      await removeQueues(supervisor);
      return result;
    },
    { validator: withRoomFor(checkList), description: 'Deletes connections with their queues. {connIds}' },
  );
  setHandler(
    defineUpdate<void, [ConnectionList]>(contract.RETRY_CONNECTIONS_UPDATE),
    ({ connIds }) => addCommands(queue, [{ kind: 'reconcile', connIds }]),
    { validator: withRoomFor(checkList), description: 'Starts over what was given up. {connIds}' },
  );
  setHandler(
    defineUpdate<CreatedConnection[], [ImportConnections]>(contract.IMPORT_CONNECTIONS_UPDATE),
    async ({ requestId }) => {
      await untilLoaded(supervisor);
      const imported = await oneAtATime(() => database.importConnections(agentId, requestId));
      if (typeof imported === 'string') fail(imported);
      return queueCommands(imported);
    },
    {
      validator: withRoomFor(checkImport),
      description: 'Takes queues over that exist already. {requestId} of subscriptions.queue_imports',
    },
  );
  setHandler(
    defineUpdate<void, [TrustRouter]>(contract.TRUST_ROUTER_UPDATE),
    async ({ server }) => {
      await untilLoaded(supervisor);
      requireOpen(supervisor);
      const refusal = await routers.trustRouter(agentId, server);
      if (typeof refusal === 'string') fail(`the router did not answer under this fingerprint: ${refusal}`);
    },
    { validator: checkTrust, description: 'Pins a messaging router to a fingerprint. {server}' },
  );
  setHandler(
    defineUpdate<RotatedQueue, [RotateQueue]>(contract.ROTATE_QUEUE_UPDATE),
    async (request) => {
      await untilLoaded(supervisor);
      requireOpen(supervisor);
      const rotated = await routers.rotateQueue(agentId, request);
      if (rotated === null || rotated === undefined) fail(`there is no connection ${request.connId}`);
      if (typeof rotated === 'string') fail(`no queue was made: ${rotated}`);
      const result = queueCommands(rotated);
      await removeQueues(supervisor);
      return result;
    },
    {
      validator: withRoomFor(checkRotation),
      description: 'Gives a connection another queue. {connId, server}',
    },
  );
}

/** Runs of earlier releases queued every command by itself, and forgot more of them in a flush. */
function areCommandsJoined(): boolean {
  return patched('commands-joined');
}

function addCommands(queue: Command[], commands: readonly Command[]): void {
  if (commands.length === 0) return;
  if (areCommandsJoined()) for (const command of commands) enqueue(queue, command);
  else queue.push(...commands);
}

async function untilLoaded(supervisor: Supervisor): Promise<void> {
  await condition(() => supervisor.agent !== undefined);
}

function requireOpen({ agentId, agent }: Supervisor): void {
  if (!agent?.isOpen) fail(`agent ${agentId} is closed`);
}

/** Queues that cannot be removed now are removed by the sweep. */
async function removeQueues({ agentId, agent }: Supervisor): Promise<void> {
  if (!agent?.isOpen) return;
  try {
    await routers.removeQueues(agentId);
  } catch (error) {
    if (isCancellation(error)) throw error;
    log.warn('deleted queues are left to the sweep', { reason: reasonIn(error) });
  }
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
      return { ...opened, workers: await database.kickDue(agentId, Date.now()) };
    },
    { description: 'Lets the agent work, and wakes a worker for everything that is due.' },
  );
  setHandler(
    defineUpdate<AgentState, []>(contract.REPLAY_UPDATE),
    async () => {
      const workers = await database.kickDue(agentId, Date.now());
      return { ...(await database.loadAgentState(agentId)), workers };
    },
    { description: 'Wakes a worker for everything that is due.' },
  );
  setHandler(
    defineUpdate<{ counters: number }, []>(contract.RESET_STATISTICS_UPDATE),
    async () => ({ counters: await database.resetStatistics(agentId) }),
    { description: "Sets the counters of the agent's work back." },
  );
}

async function setOpen(supervisor: Supervisor, isOpen: boolean): Promise<AgentState> {
  const { agentId, oneAtATime } = supervisor;
  await untilLoaded(supervisor);
  const agent = await oneAtATime(() => database.setOpen(agentId, isOpen));
  supervisor.agent = agent;
  return agent;
}

/** A command as it is queued, without anything else that was sent with it. */
function commandOf(kind: Command['kind'], { connIds }: FlushRequest): Command {
  return { kind, ...(connIds === undefined ? {} : { connIds }) };
}

/** One run of the schedule `subscription-sweep`. */
export async function subscriptionSweep(): Promise<SweepOutcome> {
  return sweeping.sweepSubscriptions(Date.now());
}

/**
 * 12 bytes as base64url; no secret, so the workflow's own random numbers do. The first character keeps it from looking
 * like an option where it is typed.
 */
function newConnectionId(): string {
  return Array.from({ length: CONNECTION_ID_LENGTH }, (_, index) => {
    const characters = index === 0 ? ALPHANUMERIC : BASE64URL;
    return characters[Math.floor(Math.random() * characters.length)];
  }).join('');
}

/** Ends an update, but not the workflow. */
function fail(message: string): never {
  throw ApplicationFailure.nonRetryable(message, SUBSCRIPTION_REFUSED);
}

function reasonIn(error: unknown): string {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

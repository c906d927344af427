/**
 * The supervisor of an agent's notification subscriptions (seed "Architecture"), one for each agent, for good. It takes
 * commands one at a time in the order in which they came; what each does is one transaction and the waking of workers,
 * so nothing here waits for a router. Operators change connections through its updates.
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
  RotateQueue,
  RotatedQueue,
  Suspension,
  SupervisorCarried,
  SupervisorState,
  SweepOutcome,
  ToggleConnections,
  ToggledConnections,
} from './contract.ts';
import * as contract from './contract.ts';
import {
  checkCreate,
  checkList,
  checkRotation,
  checkSubscribed,
  checkToggle,
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

/** Runs for good. `carried` is what the run before has left, when this one continues it. */
export async function subscriptionSupervisor(agentId: string, carried?: SupervisorCarried): Promise<void> {
  const { queue }: { queue: Command[] } = { queue: carried?.queue ?? [] };
  let current: Command | undefined;
  let done = carried?.done ?? 0;
  let agent: AgentState | undefined;
  let wanted: Suspension | undefined = carried?.wanted;
  const oneAtATime = inOrder();

  setHandler(defineQuery<SupervisorState>(contract.SUBSCRIPTION_STATE_QUERY), stateNow);
  setHandler(
    defineSignal<[Command]>(contract.COMMAND_SIGNAL),
    (command) => {
      if (isCommand(command)) queue.push(commandOf(command.kind, command));
      else log.warn('a command was not understood');
    },
    { description: 'Has something done about connections. {kind, connIds?}' },
  );
  setHandler(
    defineSignal<[FlushRequest]>(contract.FLUSH_AND_SMP_DELETE_SIGNAL),
    (request) => {
      if (!isFlushRequest(request)) return log.warn('a request to flush was not understood');
      const kept = queue.filter(({ kind }) => kind === 'delete-sub');
      queue.splice(0, queue.length, ...kept, commandOf('smp-delete', request));
    },
    { description: 'Forgets creates and deletes that wait, then ends subscriptions. {connIds?}' },
  );
  setHandler(defineSignal(contract.PAUSE_SIGNAL), () => suspendAs({ isPaused: true }), {
    description: 'Leaves the network alone until resumed.',
  });
  setHandler(defineSignal(contract.RESUME_SIGNAL), () => suspendAs({ isPaused: false }), {
    description: 'Goes on after a pause.',
  });
  setHandler(
    defineSignal<[boolean]>(contract.ONLINE_SIGNAL),
    (isOnline) => suspendAs({ isOnline: isOnline !== false }),
    { description: 'Says whether there is a network. true or false' },
  );
  handleUpdates();

  agent = await database.loadAgentState(agentId);
  if (agent.isOpen) await database.kickDue(agentId, Date.now());

  for (;;) {
    showDetails();
    await condition(
      () => isHistoryLong(LONG_HISTORY) || wanted !== undefined || (canWork() && queue.length > 0),
    );
    if (isHistoryLong(LONG_HISTORY)) await continueInNewRun();
    if (wanted) await applySuspension(wanted);
    if (!canWork() || queue.length === 0) continue;
    current = queue.shift()!;
    showDetails();
    await apply(current);
    current = undefined;
    done += 1;
  }

  /** Carries a command out; one that cannot be is reported, and the next one is taken. */
  async function apply(command: Command): Promise<void> {
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

  function handleUpdates(): void {
    setHandler(
      defineUpdate<CreatedConnection[], [CreateConnections]>(contract.CREATE_CONNECTIONS_UPDATE),
      async ({ connections }) => {
        await whileStarting();
        refuseWhileClosed();
        const orders = connections.map((connection) => ({ ...connection, connId: newConnectionId() }));
        return follow(await routers.createConnections(agentId, orders, Date.now()));
      },
      {
        validator: withRoomFor(checkCreate),
        description: 'Makes connections. {connections: [{userId, server, enableNotifications?}]}',
      },
    );
    setHandler(
      defineUpdate<ToggledConnections, [ToggleConnections]>(contract.TOGGLE_CONNECTIONS_UPDATE),
      async (request) => {
        await whileStarting();
        return follow(await oneAtATime(() => database.toggleConnections(agentId, request)));
      },
      {
        validator: withRoomFor(checkToggle),
        description: 'Switches notifications of connections. {connIds, enable}',
      },
    );
    setHandler(
      defineUpdate<ToggledConnections, [ConnectionsSubscribed]>(contract.CONNECTIONS_SUBSCRIBED_UPDATE),
      async (request) => {
        await whileStarting();
        return follow(await oneAtATime(() => database.setSubscribed(agentId, request)));
      },
      {
        validator: withRoomFor(checkSubscribed),
        description: 'Notes which connections the agent receives from. {connIds, isSubscribed}',
      },
    );
    setHandler(
      defineUpdate<DeletedConnections, [ConnectionList]>(contract.DELETE_CONNECTIONS_UPDATE),
      async ({ connIds }) => {
        await whileStarting();
        const result = follow(await oneAtATime(() => database.deleteConnections(agentId, connIds)));
        await removeQueues();
        return result;
      },
      { validator: withRoomFor(checkList), description: 'Deletes connections with their queues. {connIds}' },
    );
    setHandler(
      defineUpdate<RotatedQueue, [RotateQueue]>(contract.ROTATE_QUEUE_UPDATE),
      async (request) => {
        await whileStarting();
        refuseWhileClosed();
        const rotated = await routers.rotateQueue(agentId, request);
        if (rotated === null || rotated === undefined) refused(`there is no connection ${request.connId}`);
        if (typeof rotated === 'string') refused(`no queue was made: ${rotated}`);
        const result = follow(rotated);
        await removeQueues();
        return result;
      },
      {
        validator: withRoomFor(checkRotation),
        description: 'Gives a connection another queue. {connId, server}',
      },
    );
    setHandler(defineUpdate<AgentState, []>(contract.CLOSE_UPDATE), () => setOpen(false), {
      description: 'Ends all work of the agent until it is opened again.',
    });
    setHandler(
      defineUpdate<AgentState, []>(contract.OPEN_UPDATE),
      async () => {
        const opened = await setOpen(true);
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

  /** Nobody can make signals wait, but those who ask can be told to. */
  function withRoomFor<Request>(check: (request: Request) => void): (request: Request) => void {
    return (request) => {
      if (queue.length >= contract.MAX_WAITING_COMMANDS) refuse('too many commands wait; try again later');
      check(request);
    };
  }

  /** Queues what follows from a change. */
  function follow<Result>({ result, commands }: Changed<Result>): Result {
    queue.push(...commands);
    return result;
  }

  async function whileStarting(): Promise<void> {
    await condition(() => agent !== undefined);
  }

  function refuseWhileClosed(): void {
    if (!agent?.isOpen) refused(`agent ${agentId} is closed`);
  }

  /** What cannot be done now, the sweep does. */
  async function removeQueues(): Promise<void> {
    if (!agent?.isOpen) return;
    try {
      await routers.removeQueues(agentId);
    } catch (error) {
      if (isCancellation(error)) throw error;
      log.warn('deleted queues are left to the sweep', { reason: reasonIn(error) });
    }
  }

  async function setOpen(isOpen: boolean): Promise<AgentState> {
    await whileStarting();
    agent = await oneAtATime(() => database.setOpen(agentId, isOpen));
    return agent;
  }

  function suspendAs(change: Partial<Suspension>): void {
    const { isPaused = false, isOnline = true } = wanted ?? agent ?? {};
    wanted = { isPaused, isOnline, ...change };
  }

  async function applySuspension(suspension: Suspension): Promise<void> {
    agent = await oneAtATime(() => database.suspend(agentId, suspension));
    // Unless another change came meanwhile.
    if (wanted === suspension) wanted = undefined;
  }

  function canWork(): boolean {
    return agent !== undefined && agent.isOpen && !agent.isPaused;
  }

  async function continueInNewRun(): Promise<void> {
    await condition(allHandlersFinished);
    await continueAsNew<typeof subscriptionSupervisor>(agentId, {
      queue,
      done,
      ...(wanted === undefined ? {} : { wanted }),
    });
  }

  function stateNow(): SupervisorState {
    const { isOpen = true, isPaused = false, isOnline = true } = agent ?? {};
    return { agentId, queue, ...(current ? { current } : {}), done, isOpen, isPaused, isOnline };
  }

  function showDetails(): void {
    const how = agent && !agent.isOpen ? 'closed' : agent?.isPaused ? 'paused' : 'open';
    const now = current ? `; ${current.kind} under way` : '';
    setCurrentDetails(`${how}; ${queue.length} commands wait, ${done} were carried out${now}`);
  }
}

/** As it is queued: nothing else that somebody may have sent with it. */
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

function refused(message: string): never {
  throw ApplicationFailure.nonRetryable(message, SUBSCRIPTION_REFUSED);
}

function reasonIn(error: unknown): string {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

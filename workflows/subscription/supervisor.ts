/**
 * The supervisor of an agent's notification subscriptions, one for each agent, for good. It carries out commands one
 * at a time, in the order in which they came. A command is one transaction a page and the waking of workers, so that no
 * command waits for a router. Operators write what they want into rows, and tell the supervisor of it by a command.
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
  setCurrentDetails,
  setHandler,
  ApplicationFailure,
} from '@temporalio/workflow';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import { inOrder, isHistoryLong, onRenewal } from '../long-lived.ts';
import { DATABASE, SUBSCRIPTION_BATCH } from '../policies.ts';
import type {
  AgentState,
  Command,
  CommandUnderWay,
  SupervisorCarried,
  SupervisorState,
  TrustedRouter,
} from './contract.ts';
import { checkTrust, enqueue, isCommand } from './requests.ts';
import * as contract from './contract.ts';
import { SUBSCRIPTION_REFUSED } from '../failures.ts';

const database = proxyActivities<SubscriptionActivities>(DATABASE);
const routers = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);

/** Events after which a run is continued by a new one: what came in must be read again by the next worker. */
const LONG_HISTORY = 400;

/** What a run of a supervisor knows. */
interface Supervisor extends SupervisorCarried {
  agentId: string;
  /** Absent until it is known. */
  isOpen?: boolean;
  /** The agent is closed and opened in the order in which that was asked for. */
  oneAtATime: ReturnType<typeof inOrder>;
  /** A new run was asked for. */
  isRenewed: () => boolean;
}

/** Runs for good. `carried` is what the run before has left, when this one continues it. */
export async function subscriptionSupervisor(agentId: string, carried?: SupervisorCarried): Promise<void> {
  const supervisor: Supervisor = {
    ...(carried ?? { queue: [], done: 0 }),
    ...{ agentId, oneAtATime: inOrder(), isRenewed: onRenewal() },
  };

  setHandler(defineQuery<SupervisorState>(contract.SUBSCRIPTION_STATE_QUERY), () => stateOf(supervisor));
  handleSignals(supervisor);
  handleUpdates(supervisor);

  const { isOpen } = await database.loadAgentState(agentId);
  supervisor.isOpen = isOpen;
  if (isOpen) await database.kickDue(agentId, Date.now());

  for (;;) {
    showDetails(supervisor);
    await condition(() => isQuiet(supervisor) || hasWork(supervisor));
    if (isQuiet(supervisor)) await continueInNewRun(supervisor);
    // Between two pages there is room for everything else.
    if (hasWork(supervisor)) await carryOutPage(supervisor);
  }
}

function hasWork({ isOpen, queue, current }: Supervisor): boolean {
  return isOpen === true && (queue.length > 0 || current !== undefined);
}

/** Whether the run is to be continued by a new one. */
const isOver = ({ isRenewed }: Supervisor): boolean => isRenewed() || isHistoryLong(LONG_HISTORY);

/** Whether it can be, since no update is under way. */
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

function stateOf({ agentId, queue, current, done, isOpen = true }: Supervisor): SupervisorState {
  return { agentId, queue, ...(current ? { current } : {}), done, isOpen };
}

function showDetails({ isOpen = true, queue, current, done }: Supervisor): void {
  const how = isOpen ? 'open' : 'closed';
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
      if (!enqueue(queue, command)) log.warn('a command was left to the reconciliation: too many wait');
    },
    { description: 'Has something done about connections. {kind, connIds?}' },
  );
  setHandler(
    defineSignal(contract.FLUSH_AND_SMP_DELETE_SIGNAL),
    () => void queue.splice(0, queue.length, { kind: 'reconcile' }),
    { description: 'Forgets what waits, then ends all subscriptions that the token does not want.' },
  );
}

// --- Updates -----------------------------------------------------------------------------------------------------

function handleUpdates(supervisor: Supervisor): void {
  const { agentId } = supervisor;
  setHandler(defineUpdate<AgentState, []>(contract.CLOSE_UPDATE), () => setOpen(supervisor, false), {
    description: 'Ends all work of the agent until it is opened again.',
  });
  setHandler(
    defineUpdate<AgentState, []>(contract.OPEN_UPDATE),
    async () => {
      const opened = await setOpen(supervisor, true);
      await database.kickDue(agentId, Date.now());
      return opened;
    },
    { description: 'Lets the agent work, and wakes a worker for everything that is due.' },
  );
  setHandler(
    defineUpdate<void, [TrustedRouter]>(contract.TRUST_ROUTER_UPDATE),
    async (router) => {
      const refusal = await routers.trustRouter(agentId, router);
      // Ends the update, but not the supervisor.
      if (refusal !== undefined) throw ApplicationFailure.nonRetryable(refusal, SUBSCRIPTION_REFUSED);
    },
    {
      validator: checkTrust,
      description: 'Pins a router to another fingerprint. {protocol, host, port, keyHash}',
    },
  );
}

async function setOpen(supervisor: Supervisor, isOpen: boolean): Promise<AgentState> {
  const { agentId, oneAtATime } = supervisor;
  await condition(() => supervisor.isOpen !== undefined);
  const agent = await oneAtATime(() => database.setOpen(agentId, isOpen));
  supervisor.isOpen = agent.isOpen;
  return agent;
}

function reasonIn(error: unknown): string {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

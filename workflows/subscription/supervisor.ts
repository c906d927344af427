/**
 * The supervisor of an agent's notification subscriptions, one for each agent, for good. It carries out commands one
 * at a time, in the order in which they came. A command brings subscriptions in line with the rows: one transaction a page and
 * the waking of workers, so that no command waits for a router.
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
import type { AgentState, CommandUnderWay, SupervisorCarried, SupervisorState } from './contract.ts';
import { areConnectionIds, enqueue } from './requests.ts';
import * as contract from './contract.ts';
import { SUBSCRIPTION_REFUSED } from '../failures.ts';

const database = proxyActivities<SubscriptionActivities>(DATABASE);
const routers = proxyActivities<SubscriptionActivities>(SUBSCRIPTION_BATCH);

/** Events after which a run is continued by a new one: what came in must be read again by the next worker. */
const LONG_HISTORY = 400;

/** An idle run has a timer: one without it was changed by a Temporal that was put back, and is replaced. */
const LONGEST_IDLE_MS = 24 * 3_600_000;

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
    await condition(() => isQuiet(supervisor) || hasWork(supervisor), LONGEST_IDLE_MS);
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
    return await database.reconcileConnections(agentId, command, Date.now());
  } catch (error) {
    if (isCancellation(error)) throw error;
    await database.reportError({ agentId, kind: 'ERR INTERNAL', error: `reconcile: ${reasonIn(error)}` });
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
  const now = current ? '; one is under way' : '';
  setCurrentDetails(`${how}; ${queue.length} commands wait, ${done} were carried out${now}`);
}

// --- Signals -----------------------------------------------------------------------------------------------------

function handleSignals(supervisor: Supervisor): void {
  setHandler(
    defineSignal<[string[]?]>(contract.RECONCILE_SIGNAL),
    (connIds) => {
      if (connIds === undefined || areConnectionIds(connIds)) enqueue(supervisor.queue, connIds);
      else log.warn('a command was not understood');
      showDetails(supervisor);
    },
    {
      description:
        'Brings subscriptions in line with connections and token, of the connections [id, …], or of all without an argument.',
    },
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
    defineUpdate<void, [string]>(contract.TRUST_ROUTER_UPDATE),
    async (address) => {
      const refusal = await routers.trustRouter(agentId, address);
      // Ends the update, but not the supervisor.
      if (refusal !== undefined) throw ApplicationFailure.nonRetryable(refusal, SUBSCRIPTION_REFUSED);
    },
    { description: 'Pins a router to another fingerprint. smp://fingerprint@host:port or ntf://…' },
  );
}

async function setOpen(supervisor: Supervisor, isOpen: boolean): Promise<AgentState> {
  const { agentId, oneAtATime } = supervisor;
  await condition(() => supervisor.isOpen !== undefined);
  const agent = await oneAtATime(() => database.setOpen(agentId, isOpen));
  supervisor.isOpen = agent.isOpen;
  showDetails(supervisor);
  return agent;
}

function reasonIn(error: unknown): string {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

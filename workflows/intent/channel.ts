/**
 * One channel, or one producer, as operators steer it: pause it, resume it, see how it stands. The row in PostgreSQL is what
 * publication looks at; this workflow changes it, and after a resume lets the routes that waited go at a rate that the other side
 * can take. The row says that, too, so that a new workflow goes on with a drain whose workflow is lost.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> open
 *   open --> paused: pause
 *   paused --> draining: resume
 *   draining --> open: all that waited were let go
 *   draining --> paused: pause
 * ```
 */
import {
  CancellationScope,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineUpdate,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { ChannelActivities } from '../../activities/intent/channels.ts';
import type { ChannelState, HeldName, PauseRequest, ResumeRequest } from './channel-contract.ts';
import {
  DEFAULT_DRAIN_RATE,
  MAX_DRAIN_RATE,
  PAUSE_UPDATE,
  RESUME_UPDATE,
  STATE_QUERY,
} from './channel-contract.ts';
import { checkTexts, inOrder, onRenewal, refuse } from '../long-lived.ts';
import { DATABASE, DRAIN } from '../policies.ts';

const database = proxyActivities<ChannelActivities>(DATABASE);
const draining = proxyActivities<ChannelActivities>(DRAIN);

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function channel(name: HeldName, carried?: ChannelState): Promise<void> {
  let state: ChannelState = carried ?? { channel: name, status: 'open', sinceMs: 0 };
  let drain: CancellationScope | undefined;
  // Changes of two operators are made one after the other, in the order in which they came.
  const oneAtATime = inOrder();
  const isRenewed = onRenewal();
  const isOver = () => isRenewed() || workflowInfo().continueAsNewSuggested;

  setHandler(defineQuery<ChannelState>(STATE_QUERY), () => state);
  setHandler(
    defineUpdate<ChannelState, [PauseRequest | undefined]>(PAUSE_UPDATE),
    (request) =>
      oneAtATime(async () => {
        const { reason, requestedBy = 'operator' } = request ?? {};
        const sinceMs = await database.setChannelPaused(name, true, requestedBy, reason);
        drain?.cancel();
        enter('paused', sinceMs, { requestedBy, ...(reason === undefined ? {} : { reason }) });
        return state;
      }),
    {
      validator: checkRequest,
      description:
        'Publishes nothing on this channel, or of this producer, until resumed. {reason?, requestedBy?}',
    },
  );
  setHandler(
    defineUpdate<ChannelState, [ResumeRequest | undefined]>(RESUME_UPDATE),
    (request) =>
      oneAtATime(async () => {
        const { ratePerSecond = DEFAULT_DRAIN_RATE, requestedBy = 'operator' } = request ?? {};
        const sinceMs = await database.setChannelPaused(name, false, requestedBy, null, ratePerSecond);
        drain?.cancel();
        enter('draining', sinceMs, { requestedBy, drain: { ratePerSecond, released: 0 } });
        return state;
      }),
    {
      validator: checkResume,
      description: 'Publishes again; routes that waited go at a rate. {ratePerSecond?, requestedBy?}',
    },
  );

  function enter(status: ChannelState['status'], sinceMs: number, rest: Partial<ChannelState>): void {
    state = { channel: name, status, sinceMs, ...rest };
    setCurrentDetails(describe(state));
  }

  if (!carried) {
    const stored = await database.loadChannel(name);
    // An update that came first knows better.
    if (state.sinceMs === 0) {
      state = stored;
      setCurrentDetails(describe(state));
    }
  }

  for (;;) {
    await condition(() => state.status === 'draining' || isOver());
    if (state.status === 'draining') await release(state);
    if (isOver()) {
      await condition(allHandlersFinished);
      await continueAsNew<typeof channel>(name, state);
    }
  }

  /** Lets the waiting routes go until all are, or until the state changes. */
  async function release(of: ChannelState): Promise<void> {
    const scope = new CancellationScope();
    drain = scope;
    const ratePerSecond = of.drain?.ratePerSecond ?? DEFAULT_DRAIN_RATE;
    try {
      const released = await scope.run(() => draining.drainChannel(name, of.sinceMs, ratePerSecond));
      if (state === of) enter('open', Date.now(), { drain: { ratePerSecond, released } });
    } catch (error) {
      // Paused again, or resumed at another rate.
      if (!isCancellation(error) || CancellationScope.current().consideredCancelled) throw error;
    }
  }
}

function describe({ status, reason, requestedBy, drain }: ChannelState): string {
  const by = requestedBy === undefined ? '' : ` by ${requestedBy}`;
  if (status === 'paused') return `paused${by}${reason === undefined ? '' : `: ${reason}`}`;
  if (status === 'draining')
    return `resumed${by}, letting ${drain?.ratePerSecond} waiting routes go per second`;
  return drain ? `open, ${drain.released} waiting routes were let go` : 'open';
}

function checkRequest(request: unknown): void {
  if (request === undefined || request === null) return;
  if (typeof request !== 'object') refuse('the argument must be an object');
  checkTexts(request, 'reason', 'requestedBy');
}

function checkResume(request: unknown): void {
  checkRequest(request);
  const rate = (request as ResumeRequest | undefined)?.ratePerSecond;
  if (rate === undefined) return;
  if (!Number.isFinite(rate) || rate <= 0 || rate > MAX_DRAIN_RATE) {
    refuse(`ratePerSecond must be a number above 0, at most ${MAX_DRAIN_RATE}`);
  }
}

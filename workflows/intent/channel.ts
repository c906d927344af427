/**
 * One channel, or one producer, as operators steer it: pause it, resume it, see its state. The row in PostgreSQL is what
 * publication looks at; this workflow changes it, and after a resume it releases the routes that waited, at a rate that the other
 * side can take. The row has the rate, so that a new workflow continues the drain of one that is lost.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> open
 *   open --> paused: pause
 *   paused --> draining: resume
 *   draining --> open: all that waited were released
 *   draining --> paused: pause
 * ```
 */
import {
  CancellationScope,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { ChannelActivities } from '../../activities/intent/channels.ts';
import { DEFAULT_DRAIN_RATE } from '../hold-contract.ts';
import { byWhom, detailsOf, shortText } from '../details.ts';
import { loadHold, onHold } from '../holds.ts';
import { onRenewal } from '../long-lived.ts';
import { DRAIN } from '../policies.ts';
import type { ChannelState, HeldName } from './channel-contract.ts';
import { STATE_QUERY, channelStateOf, holdKeyOf } from './channel-contract.ts';

const draining = proxyActivities<ChannelActivities>(DRAIN);

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function channel(name: HeldName, carried?: ChannelState): Promise<void> {
  const key = holdKeyOf(name);
  let state: ChannelState = carried ?? { channel: name, status: 'open', sinceMs: 0 };
  let drain: CancellationScope | undefined;
  const isRenewed = onRenewal();
  const isOver = () => isRenewed() || workflowInfo().continueAsNewSuggested;

  setHandler(defineQuery<ChannelState>(STATE_QUERY), () => state);
  onHold<ChannelState>({
    key,
    pauses: 'Publishes nothing on this channel, or of this producer, until resumed. {reason?, requestedBy?}',
    resumes: 'Publishes again; routes that waited go at a rate. {ratePerSecond?, requestedBy?}',
    follow(hold) {
      drain?.cancel();
      enter(channelStateOf(name, hold));
    },
    answer: () => state,
  });

  function enter(changed: ChannelState): void {
    state = changed;
    setCurrentDetails(describe(state));
  }

  if (!carried) {
    const stored = await loadHold(key);
    // An update that came first knows better.
    if (state.sinceMs === 0) enter(channelStateOf(name, stored));
  }

  for (;;) {
    await condition(() => state.status === 'draining' || isOver());
    if (state.status === 'draining') await release(state);
    if (isOver()) {
      await condition(allHandlersFinished);
      await continueAsNew<typeof channel>(name, state);
    }
  }

  /** Releases the waiting routes until none is left, or until the state changes. */
  async function release(of: ChannelState): Promise<void> {
    const scope = new CancellationScope();
    drain = scope;
    const ratePerSecond = of.drain?.ratePerSecond ?? DEFAULT_DRAIN_RATE;
    try {
      const released = await scope.run(() => draining.drainChannel(name, of.sinceMs, ratePerSecond));
      if (state !== of) return;
      enter({ channel: name, status: 'open', sinceMs: Date.now(), drain: { ratePerSecond, released } });
    } catch (error) {
      // Paused again, or resumed at another rate.
      if (!isCancellation(error) || CancellationScope.current().consideredCancelled) throw error;
    }
  }
}

function describe({ status, reason, requestedBy, drain }: ChannelState): string {
  const by = byWhom(requestedBy);
  if (status === 'paused')
    return detailsOf(`Paused${by}: new routes wait until it is resumed.`, shortText(reason ?? ''));
  if (status === 'draining')
    return `Resumed${by}; releases ${drain?.ratePerSecond} waiting routes per second.`;
  return drain ? `Open; ${drain.released} waiting routes were released.` : 'Open.';
}

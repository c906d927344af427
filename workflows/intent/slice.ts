/**
 * The story of a slice: many intents that were read together are accepted and published together, and whoever is in
 * trouble of his own then gets a notification workflow, which finds what was done and goes on. What keeps all of them from
 * going on is waited for as a slice. A slice may run twice, and beside a notification of one of its intents: all of it is
 * decided by rows.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  TimeoutFailure,
  defineQuery,
  defineSignal,
  isCancellation,
  makeContinueAsNewFunc,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { SliceActivities } from '../../activities/intent/slices.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import { POSTGRES_AWAY, REDIS_UNAVAILABLE } from '../failures.ts';
import { HANDING_ON, SLICE_TRY, SLICE_WHEN_POSSIBLE, STEERING } from '../policies.ts';
import type { NotificationInput } from './contract.ts';
import { identityOf } from './contract.ts';
import type { SliceDelivery, SliceInput, SliceOutcome } from './slice-contract.ts';
import { CANCEL_INTENT_SIGNAL, SLICE_INTENTS_QUERY, WAITING_SLICE_WORKFLOW } from './slice-contract.ts';

const firstTry = proxyLocalActivities<SliceActivities>(SLICE_TRY);
const whenPossible = proxyActivities<SliceActivities>(SLICE_WHEN_POSSIBLE);
const handing = proxyActivities<SliceActivities>(HANDING_ON);
const steering = proxyActivities<SteeringActivities>(STEERING);

const cancelIntent = defineSignal<[string]>(CANCEL_INTENT_SIGNAL);

/** Servers that are away, or time: nothing about the intents. */
const AWAY: readonly unknown[] = [...POSTGRES_AWAY, REDIS_UNAVAILABLE];

/**
 * Delivers intents together. Completes when each is finished, cancelled, or has a workflow of its own; goes on as a slice
 * that waits with those for whom the User Service is away.
 *
 * @throws CancelledFailure when an operator cancelled all of it; then no route of its intents is left open, unless a
 * workflow of its own has it.
 */
export function notificationSlice(input: SliceInput): Promise<SliceOutcome> {
  return work(input, deliver);
}

/** The rest of a slice, which is tried again and again until the User Service is back. Ends as a slice does. */
export function notificationSliceWaiting(input: SliceInput): Promise<SliceOutcome> {
  setCurrentDetails('waits for the User Service; the pending activity shows why and when it is asked again');
  return work(input, deliverWhenPossible);
}

/** @param attempt may be ended by an operator. */
type Deliver = (input: SliceInput, attempt: CancellationScope) => Promise<SliceDelivery>;

async function work(input: SliceInput, deliverAll: Deliver): Promise<SliceOutcome> {
  const { slice, intents, before } = input;
  const cancelled = new Set<string>();
  const attempt = new CancellationScope();
  setHandler(defineQuery<NotificationInput[]>(SLICE_INTENTS_QUERY), () => intents);
  setHandler(cancelIntent, (notificationId) => {
    cancelled.add(notificationId);
    // Only one that waits can be stopped: it begins anew with the others.
    if (before) attempt.cancel();
  });
  const isWanted = ({ notificationId }: NotificationInput) => !cancelled.has(notificationId);
  try {
    const wanted = intents.filter(isWanted);
    const { open, waiting, ...counts } = await deliverAll({ slice, intents: wanted }, attempt);
    await skip(intents.filter((intent) => !isWanted(intent)));
    const handedOn = intents.filter((intent) => isWanted(intent) && open.includes(intent.notificationId));
    if (handedOn.length > 0) await handing.beginNotifications({ slice, intents: handedOn });
    const outcome = sum(before, { ...counts, handedOn: handedOn.map(idOf), cancelled: [...cancelled] });
    const rest = intents.filter((intent) => isWanted(intent) && waiting.includes(intent.notificationId));
    if (rest.length > 0) return await goOnWaiting({ slice, intents: rest, before: outcome });
    return outcome;
  } catch (error) {
    if (!isCancellation(error) && !CancellationScope.current().consideredCancelled) throw error;
    setCurrentDetails('cancelled, routes that are open are being skipped');
    await CancellationScope.nonCancellable(() => skip(intents));
    throw error;
  }
}

async function deliver(input: SliceInput): Promise<SliceDelivery> {
  try {
    return await firstTry.deliverSlice(input);
  } catch (error) {
    if (!isAboutServers(error)) return leaveToEach(input, error);
  }
  setCurrentDetails('waits for a server; the pending activity shows why and when it is tried again');
  try {
    const delivery = await whenPossible.deliverSlice(input);
    setCurrentDetails('');
    return delivery;
  } catch (error) {
    return leaveToEach(input, error);
  }
}

/** @param attempt ends it: then all of them still wait. */
async function deliverWhenPossible(input: SliceInput, attempt: CancellationScope): Promise<SliceDelivery> {
  try {
    return await attempt.run(() => whenPossible.deliverWaitingSlice(input));
  } catch (error) {
    if (!isCancellation(error) || CancellationScope.current().consideredCancelled)
      return leaveToEach(input, error);
    return { ...NOTHING, open: [], waiting: input.intents.map(idOf) };
  }
}

function goOnWaiting(input: SliceInput): Promise<never> {
  return makeContinueAsNewFunc<typeof notificationSliceWaiting>({ workflowType: WAITING_SLICE_WORKFLOW })(
    input,
  );
}

const NOTHING = { accepted: 0, duplicates: 0, rejected: 0 } as const;

/** What cannot be delivered together is left to the notifications of all. */
function leaveToEach({ intents }: SliceInput, error: unknown): SliceDelivery {
  if (isCancellation(error)) throw error;
  setCurrentDetails('the common try failed, so each intent gets a workflow of its own');
  return { ...NOTHING, open: intents.map(idOf), waiting: [] };
}

function isAboutServers(error: unknown): boolean {
  // Of a local activity the failure may come as it is.
  const failure = error instanceof ActivityFailure ? error.cause : error;
  if (failure instanceof ApplicationFailure) return AWAY.includes(failure.type);
  return failure instanceof TimeoutFailure;
}

function sum(before: SliceOutcome | undefined, now: SliceOutcome): SliceOutcome {
  if (!before) return now;
  return {
    accepted: before.accepted + now.accepted,
    duplicates: before.duplicates + now.duplicates,
    rejected: before.rejected + now.rejected,
    handedOn: [...before.handedOn, ...now.handedOn],
    cancelled: [...before.cancelled, ...now.cancelled],
  };
}

async function skip(intents: readonly NotificationInput[]): Promise<void> {
  await Promise.all(intents.map((intent) => steering.skipOpenRoutes(idOf(intent), identityOf(intent))));
}

const idOf = ({ notificationId }: NotificationInput): string => notificationId;

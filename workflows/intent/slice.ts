/**
 * The story of a slice: many intents that were read together are accepted and published together, and whoever is not
 * finished then gets a notification workflow, which finds what was done and goes on. A slice may run twice, and beside
 * a notification of one of its intents: all of it is decided by rows.
 */
import {
  CancellationScope,
  defineSignal,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { SliceActivities } from '../../activities/intent/slices.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import { HANDING_ON, SLICE_TRY, STEERING } from '../policies.ts';
import type { NotificationInput } from './contract.ts';
import type { SliceDelivery, SliceInput, SliceOutcome } from './slice-contract.ts';
import { CANCEL_INTENT_SIGNAL } from './slice-contract.ts';

const firstTry = proxyLocalActivities<SliceActivities>(SLICE_TRY);
const handing = proxyActivities<SliceActivities>(HANDING_ON);
const steering = proxyActivities<SteeringActivities>(STEERING);

const cancelIntent = defineSignal<[string]>(CANCEL_INTENT_SIGNAL);

/**
 * Delivers intents together. Completes when each is finished, cancelled, or has a workflow of its own.
 *
 * @throws CancelledFailure when an operator cancelled all of it; then no route of its intents is left open, unless a
 * workflow of its own has it.
 */
export async function notificationSlice({ slice, intents }: SliceInput): Promise<SliceOutcome> {
  const cancelled = new Set<string>();
  setHandler(cancelIntent, (notificationId) => void cancelled.add(notificationId));
  const isWanted = ({ notificationId }: NotificationInput) => !cancelled.has(notificationId);
  try {
    const wanted = intents.filter(isWanted);
    const { open, ...counts } = await deliver({ slice, intents: wanted });
    await skip(intents.filter((intent) => !isWanted(intent)));
    const handedOn = intents.filter((intent) => isWanted(intent) && open.includes(intent.notificationId));
    if (handedOn.length > 0) await handing.beginNotifications({ slice, intents: handedOn });
    return { ...counts, handedOn: handedOn.map(idOf), cancelled: [...cancelled] };
  } catch (error) {
    if (!isCancellation(error) && !CancellationScope.current().consideredCancelled) throw error;
    setCurrentDetails('cancelled, routes that are open are being skipped');
    await CancellationScope.nonCancellable(() => skip(intents));
    throw error;
  }
}

/** What cannot be delivered together is left to the notifications of all. */
async function deliver(input: SliceInput): Promise<SliceDelivery> {
  try {
    return await firstTry.deliverSlice(input);
  } catch (error) {
    if (isCancellation(error)) throw error;
    setCurrentDetails('the common try failed, so each intent gets a workflow of its own');
    return { accepted: 0, duplicates: 0, rejected: 0, open: input.intents.map(idOf) };
  }
}

async function skip(intents: readonly NotificationInput[]): Promise<void> {
  await Promise.all(intents.map((intent) => steering.skipOpenRoutes(idOf(intent))));
}

const idOf = ({ notificationId }: NotificationInput): string => notificationId;

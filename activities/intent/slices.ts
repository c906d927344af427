/**
 * Activities of a slice: intents that were read together are accepted and published together, by the code that does it for
 * one. What a slice wins is the bookkeeping of Temporal, and statements and round trips, which it has once and not a
 * hundred times.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { INVALID_SPANID, INVALID_TRACEID, TraceFlags, trace } from '@opentelemetry/api';
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Intent } from '../../api/intent/entry.ts';
import { STREAM_START } from '../../api/stream-ids.ts';
import type { SliceDelivery, SliceInput } from '../../workflows/intent/slice-contract.ts';
import type { AcceptIntents, Decided } from './acceptance.ts';
import type { TakenIntent } from './decisions.ts';
import { createIntake } from './intake.ts';
import type { RouteResources } from './publication.ts';
import { createPublisher } from './publication.ts';
import { loadRoutesOf } from './route-rows.ts';
import { publishFresh } from './routes.ts';
import { PARALLEL_STARTS } from './start.ts';

/**
 * Slices that a process works on concurrently. More would not be faster, since one leaves no time unused, and all of them
 * would end later.
 */
const SLICES_AT_ONCE = 4;
/** Who is not found by then does not hold the others up, ms. */
const PATIENCE_MS = 2_000;

const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;

export interface SliceResources extends RouteResources {
  workflows: WorkflowClient;
  acceptIntents: AcceptIntents;
}

export type SliceActivities = ReturnType<typeof createSliceActivities>;

export function createSliceActivities(resources: SliceResources) {
  const { db, acceptIntents } = resources;
  const publisher = createPublisher(resources);
  const inTurn = pLimit(SLICES_AT_ONCE);
  // A notification that goes on with what was done here makes first attempts as it was done here.
  const intake = createIntake({ ...resources, bridge: { dispatch: 'on_failure' } });

  return {
    /**
     * Accepts intents and makes the first attempts of their routes, all together.
     *
     * @returns which of them are not finished by that.
     * @throws ApplicationFailure of PostgreSQL, CancelledFailure; a part may be done then, and is found so later.
     */
    deliverSlice: ({ slice, intents }: SliceInput): Promise<SliceDelivery> =>
      inTurn(async () => {
        linkToTraces(intents);
        const taken = intents.map((intent) => ({ ...intent, slice }) as TakenIntent);
        const patience = sleep(PATIENCE_MS, undefined, { ref: false });
        const outcomes = (await acceptIntents(taken, { attempt: 0, patience })).map(outcomeOf);
        const idsOf = (isWanted: (outcome: string | undefined) => boolean) =>
          taken.flatMap(({ notificationId }, index) => (isWanted(outcomes[index]) ? [notificationId] : []));
        const accepted = idsOf((outcome) => outcome === 'accepted');
        const duplicates = idsOf((outcome) => outcome === 'duplicate');
        const undecided = idsOf((outcome) => outcome === undefined);
        return {
          accepted: accepted.length,
          duplicates: duplicates.length,
          rejected: taken.length - accepted.length - duplicates.length - undecided.length,
          open: [...undecided, ...(await publish(accepted))],
        };
      }),

    /** Gives each of these intents a workflow of its own, unless it has one. */
    async beginNotifications({ slice, intents }: SliceInput): Promise<void> {
      const options = { isUrgent: false, readBefore: STREAM_START, known: new Map() };
      await pLimit(PARALLEL_STARTS).map(intents, (intent) =>
        intake.take({ ok: true, intent: { ...intent, slice } as Intent }, options),
      );
    },
  };

  /** @returns the notifications with routes that are neither published nor skipped. */
  async function publish(notificationIds: readonly string[]): Promise<Set<string>> {
    const begun = await publisher.begin();
    const rows = await loadRoutesOf(db, notificationIds);
    const attempts = await publishFresh(publisher, rows, begun);
    const open = rows.filter((row) => {
      const { status } = attempts.get(row) ?? row;
      return status !== 'published' && status !== 'skipped';
    });
    return new Set(open.map(({ notification_id }) => notification_id));
  }
}

/** Undefined when it could not be decided. */
const outcomeOf = (decided: Decided): string | undefined =>
  'acceptance' in decided ? decided.acceptance.outcome : undefined;

/** One span is of many intents: it leads to the trace that each came from, as far as its producer has named one. */
function linkToTraces(intents: SliceInput['intents']): void {
  const span = trace.getActiveSpan();
  if (!span?.isRecording()) return;
  span.addLinks(
    intents.map(({ notificationId, traceId = '' }) => ({
      context: {
        traceId: TRACE_ID.test(traceId) ? traceId : INVALID_TRACEID,
        spanId: INVALID_SPANID,
        traceFlags: TraceFlags.NONE,
      },
      attributes: { notification_id: notificationId },
    })),
  );
}

/**
 * Activities of a slice: intents that were read together are accepted and published together, by the code that does it for
 * one. What a slice wins is the bookkeeping of Temporal, and statements and round trips, which it has once and not a
 * hundred times.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import { STREAM_START } from '../../api/stream-ids.ts';
import { REDIS_UNAVAILABLE, USER_SERVICE_UNAVAILABLE } from '../../workflows/failures.ts';
import type { Acceptance, DeferralReason } from '../../workflows/intent/contract.ts';
import type { SliceDelivery, SliceInput } from '../../workflows/intent/slice-contract.ts';
import { withHeartbeats } from '../heartbeat.ts';
import { isPostgresAway } from '../postgres.ts';
import { isOfType, reasonOf } from '../reason.ts';
import type { AcceptIntents } from './acceptance.ts';
import { isForServiceAway } from './audience.ts';
import type { TakenIntent } from './decisions.ts';
import type { Beginning } from './hand-off.ts';
import { createIntake } from './intake.ts';
import { beginEach } from './key-order.ts';
import type { RouteResources } from './publication.ts';
import { createPublisher } from './publication.ts';
import type { RouteRow } from './route-rows.ts';
import { loadRoutesOf } from './route-rows.ts';
import { publishFresh } from './routes.ts';
import { linkToTraces } from './trace-links.ts';
import type { UserService } from './user-service.ts';

/**
 * Slices that a process works on concurrently. More would not be faster, since one leaves no time unused, and all of them
 * would end later.
 */
const SLICES_AT_ONCE = 4;
/** Who is not found by then does not hold the others up, ms; in the first try, and where all of them wait. */
const PATIENCE_MS = 2_000;
const WAITING_PATIENCE_MS = 20_000;

export interface SliceResources extends RouteResources {
  workflows: WorkflowClient;
  acceptIntents: AcceptIntents;
  userService: UserService;
}

export type SliceActivities = ReturnType<typeof createSliceActivities>;

export function createSliceActivities(resources: SliceResources) {
  const { db, acceptIntents, userService } = resources;
  const publisher = createPublisher(resources, { sparesBudgets: true });
  const inTurn = pLimit(SLICES_AT_ONCE);
  const waitingInTurn = pLimit(SLICES_AT_ONCE);
  // A notification that goes on with what was done here makes first attempts as it was done here.
  const intake = createIntake({ ...resources, bridge: { dispatch: 'on_failure' } });

  return {
    /**
     * Accepts intents and makes the first attempts of their routes, all together.
     *
     * @returns which of them are not finished by that, and which wait for the User Service.
     * @throws ApplicationFailure of PostgreSQL or `RedisUnavailable`, to be tried again; any other is not retried;
     * CancelledFailure. A part may be done then, and is found so later.
     */
    deliverSlice: (input: SliceInput): Promise<SliceDelivery> => {
      const attempt = () => inTurn(() => deliver(input, PATIENCE_MS));
      return finalUnlessAway(Context.current().info.isLocal ? attempt() : withHeartbeats(attempt));
    },

    /**
     * The same for intents that wait for the User Service.
     *
     * @throws ApplicationFailure `UserServiceUnavailable`, to be tried again, too: when it is away for all of them.
     */
    deliverWaitingSlice: (input: SliceInput): Promise<SliceDelivery> => {
      const attempt = async () => {
        const delivery = await deliver(input, WAITING_PATIENCE_MS);
        const waiting = delivery.waiting.length;
        if (waiting === 0 || waiting < input.intents.length) return delivery;
        throw ApplicationFailure.create({
          type: USER_SERVICE_UNAVAILABLE,
          message: `the User Service is away; ${waiting} intents wait for it`,
        });
      };
      return finalUnlessAway(withHeartbeats(() => waitingInTurn(attempt)));
    },

    /** Gives each of these intents a workflow of its own, unless it has one. */
    async beginNotifications({ slice, intents }: SliceInput): Promise<void> {
      const options = { isUrgent: false, readBefore: STREAM_START, known: new Map() };
      const taken = intents.map((intent) => ({ ...intent, slice }) as TakenIntent);
      await beginEach(db, taken, (intent) => intake.take({ ok: true, intent }, options));
    },
  };

  async function deliver({ slice, intents }: SliceInput, patienceMs: number): Promise<SliceDelivery> {
    linkToTraces(intents);
    // Nothing is accepted that could not be published.
    const begun = await publisher.begin();
    if ('error' in begun) throw redisUnavailable(reasonOf(begun.error));
    const beganAtMs = performance.now();
    const taken = intents.map((intent) => ({ ...intent, slice }) as TakenIntent);
    const { isLocal, attempt } = Context.current().info;
    const patience = sleep(patienceMs, undefined, { ref: false });
    const decided = await acceptIntents(taken, { attempt: isLocal ? 0 : attempt, patience });
    for (const one of decided) if ('error' in one && isPostgresAway(one.error)) throw one.error;
    const isAway = userService.isAway(beganAtMs);
    const outcomes = decided.map((one): Outcome => {
      if ('acceptance' in one) return one.acceptance.outcome;
      if (isForServiceAway(one.error)) return 'waiting';
      return isAway && isOfType(one.error, USER_SERVICE_UNAVAILABLE) ? 'waiting' : 'open';
    });
    const idsOf = (wanted: Outcome) =>
      taken.flatMap(({ notificationId }, index) => (outcomes[index] === wanted ? [notificationId] : []));
    const [accepted, duplicates, cancelled, open, waiting] = [
      idsOf('accepted'),
      idsOf('duplicate'),
      idsOf('cancelled'),
      idsOf('open'),
      idsOf('waiting'),
    ];
    const others = [accepted, duplicates, cancelled, open, waiting].flat();
    const rejected = taken.length - others.length;
    const fresh = decided.flatMap((one) => ('fresh' in one ? one.fresh() : []));
    const unpublished = await publish(accepted, fresh, begun);
    return {
      ...{ accepted: accepted.length, duplicates: duplicates.length, rejected },
      open: [...open, ...unpublished],
      waiting,
    };
  }

  /**
   * @param fresh routes of those that were accepted now.
   * @returns the notifications with routes that are neither published nor skipped.
   * @throws ApplicationFailure of PostgreSQL, or `RedisUnavailable`; nothing is spent then.
   */
  async function publish(
    notificationIds: readonly string[],
    fresh: readonly RouteRow[],
    begun: Beginning,
  ): Promise<Set<string>> {
    const known = new Set(fresh.map(({ notification_id }) => notification_id));
    const others = notificationIds.filter((id) => !known.has(id));
    const rows = [...fresh, ...(await loadRoutesOf(db, others))];
    const attempts = await publishFresh(publisher, rows, begun);
    const prevented = [...attempts.values()].find(
      (attempt) => attempt.status === 'deferred' && OF_REDIS.includes(attempt.reason),
    );
    if (prevented?.status === 'deferred') throw redisUnavailable(prevented.reason);
    const open = rows.filter((row) => {
      const { status } = attempts.get(row) ?? row;
      return status !== 'published' && status !== 'skipped';
    });
    return new Set(open.map(({ notification_id }) => notification_id));
  }
}

/** What became of an intent: `open` in trouble of its own, `waiting` for a User Service that is away. */
type Outcome = Acceptance['outcome'] | 'open' | 'waiting';

/** Why an attempt was deferred that could not be made for any other route either. */
const OF_REDIS: readonly DeferralReason[] = ['redis_unavailable', 'replicas_behind'];

const redisUnavailable = (reason: string): ApplicationFailure =>
  ApplicationFailure.create({ type: REDIS_UNAVAILABLE, message: `Redis did not take the routes: ${reason}` });

/** What is not for the sake of a server would fail again in the same way: then each intent is tried by itself. */
async function finalUnlessAway<T>(attempt: Promise<T>): Promise<T> {
  try {
    return await attempt;
  } catch (error) {
    const isToBeRetried =
      isPostgresAway(error) ||
      isOfType(error, REDIS_UNAVAILABLE) ||
      isOfType(error, USER_SERVICE_UNAVAILABLE) ||
      Context.current().cancellationSignal.aborted;
    if (isToBeRetried) throw error;
    throw ApplicationFailure.nonRetryable(reasonOf(error), 'SliceFailed');
  }
}

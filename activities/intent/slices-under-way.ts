/**
 * The slices that a reader has started and that may not have ended. Of two intents with one key the earlier is to be
 * decided first, and slices that wait side by side are worked off in any order: so one begins only when all that have a
 * key of its intents have ended. Their number is bounded, too: a backlog waits in its stream, where it can be seen, and
 * not as a thousand workflows.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { Intent } from '../../api/intent/entry.ts';
import {
  RUNNING_SLICES,
  SLICE_INTENTS_QUERY,
  SLICE_WORKFLOW,
  sliceOfWorkflowId,
  sliceWorkflowId,
} from '../../workflows/intent/slice-contract.ts';
import { ANSWER, query } from '../postgres.ts';
import type { TakenIntent } from './decisions.ts';
import { keyOf } from './key-order.ts';
import { noteUndecided } from './waiting.ts';

/** Enough for several processes to have work. */
const MOST_UNDER_WAY = 50;
/** A slice that takes longer than any should does not hold up what comes after it, ms. */
const LONGEST_WAIT_MS = 60_000;
/** Only a slice that waits can tell of itself: it has been through its first try. The others will not take long, ms. */
const TELL_LIMIT_MS = 3_000;

interface UnderWay {
  workflowId: string;
  /** By their keys. Undefined when another reader has started it, and it has not told: any. */
  intents?: ReadonlyMap<string, Intent>;
  /** Settled once Temporal has answered. */
  started: Promise<unknown>;
}

export type SlicesUnderWay = Awaited<ReturnType<typeof findSlicesUnderWay>>;

/** @returns those that other readers have left. @throws what the Temporal client fails with. */
export async function findSlicesUnderWay(workflows: WorkflowClient, db: Pool) {
  const underWay: UnderWay[] = [];
  for await (const { workflowId } of workflows.list({ query: RUNNING_SLICES })) {
    underWay.push({ workflowId, started: Promise.resolve() });
  }
  // Readers leave no more than that each; who knows how many readers there were.
  const inTurn = pLimit(MOST_UNDER_WAY);
  const told = Promise.all(underWay.map((slice) => inTurn(() => tell(slice).catch(() => undefined))));

  return {
    /**
     * Waits until nothing has to end before these intents are begun.
     *
     * @returns false when `stop` is aborted before. @throws ApplicationFailure of PostgreSQL.
     */
    async mayBegin(intents: readonly Intent[], stop: AbortSignal): Promise<boolean> {
      const keys = intents.map(keyOf);
      const mustWait = () =>
        underWay.length >= MOST_UNDER_WAY || underWay.some(({ intents: theirs }) => isOfThem(theirs, keys));
      if (mustWait()) await told;
      while (underWay.length > 0 && mustWait() && !stop.aborted) {
        const [oldest] = underWay as [UnderWay];
        const isOver = await endOf(oldest, stop);
        if (stop.aborted) break;
        if (!isOver) await putBefore(oldest, keys);
        underWay.shift();
      }
      return !stop.aborted;
    },

    /** Whether something that has a key of these must end before they are begun. */
    hasKeyOf(intents: readonly Intent[]): boolean {
      const keys = intents.map(keyOf);
      return underWay.some(({ intents: theirs }) => isOfThem(theirs, keys));
    },

    /** These are being started as a slice. */
    begun(intents: readonly Intent[], started: Promise<unknown>): void {
      const workflowId = sliceWorkflowId(intents[0]!.notificationId);
      underWay.push({
        workflowId,
        intents: byKey(intents),
        started,
      });
    },
  };

  /** Asks a slice for its intents. @throws what the Temporal client fails with. */
  async function tell(slice: UnderWay): Promise<void> {
    const handle = workflows.getHandle(slice.workflowId);
    slice.intents = byKey(
      await workflows.withDeadline(Date.now() + TELL_LIMIT_MS, () =>
        handle.query<Intent[]>(SLICE_INTENTS_QUERY),
      ),
    );
  }

  /**
   * @returns false when it takes longer than it should. One that was not started is not waited for, nor one that waits
   * itself: rows say which intents do, and later ones with their keys come after them.
   */
  async function endOf({ workflowId, started }: UnderWay, stop: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const signal = AbortSignal.any([stop, over.signal]);
    const isEnough = sleep(LONGEST_WAIT_MS, undefined, { signal }).catch(() => undefined);
    const ended = started.then(() => endOfRun(workflowId)).catch(() => undefined);
    const isOver = await Promise.race([ended.then(() => true), isEnough.then(() => false)]);
    over.abort();
    return isOver;
  }

  async function endOfRun(workflowId: string): Promise<void> {
    const { type, runId } = await workflows.getHandle(workflowId).describe();
    if (type !== SLICE_WORKFLOW) return;
    await workflows.getHandle(workflowId, runId, { followRuns: false }).result();
  }

  /** A slice that takes so long may wait for PostgreSQL: then nothing is begun behind it either. */
  async function putBefore({ workflowId, intents }: UnderWay, keys: readonly string[]): Promise<void> {
    await query(db, ANSWER, []);
    for (const key of keys) {
      const earlier = intents?.get(key);
      if (!earlier) continue;
      const taken: TakenIntent = { ...earlier, slice: sliceOfWorkflowId(workflowId) };
      await noteUndecided(db, taken, 'an intent with the same key came after it');
    }
  }
}

/** Of two with one key the first. */
const byKey = (intents: readonly Intent[]): ReadonlyMap<string, Intent> =>
  new Map(intents.toReversed().map((intent) => [keyOf(intent), intent]));

/** @param theirs undefined: any. */
const isOfThem = (theirs: UnderWay['intents'], keys: readonly string[]): boolean =>
  theirs === undefined || keys.some((key) => theirs.has(key));

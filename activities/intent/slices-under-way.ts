/**
 * The slices that a reader has started and that may not have ended. Of two intents with one key the earlier is to be
 * decided first, and slices that wait side by side are worked off in any order: so one begins only when all that have a
 * key of its intents have ended. Their number is bounded, too: a backlog waits in its stream, where it can be seen, and
 * not as a thousand workflows.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { WorkflowClient } from '@temporalio/client';
import type { Intent } from '../../api/intent/entry.ts';
import { RUNNING_SLICES, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import { keyOf } from './key-order.ts';

/** Enough for several processes to have work. */
const MOST_UNDER_WAY = 50;
/** A slice that takes longer than any should does not hold up what comes after it, ms. */
const LONGEST_WAIT_MS = 60_000;

interface UnderWay {
  workflowId: string;
  /** Undefined when another reader has started it: any. */
  keys?: ReadonlySet<string>;
  /** Settled once Temporal has answered. */
  started: Promise<unknown>;
}

export type SlicesUnderWay = Awaited<ReturnType<typeof findSlicesUnderWay>>;

/** @returns those that other readers have left. @throws what the Temporal client fails with. */
export async function findSlicesUnderWay(workflows: WorkflowClient) {
  const underWay: UnderWay[] = [];
  for await (const { workflowId } of workflows.list({ query: RUNNING_SLICES })) {
    underWay.push({ workflowId, started: Promise.resolve() });
  }

  return {
    /** Waits until nothing has to end before these intents are begun. @returns false when `stop` is aborted before. */
    async mayBegin(intents: readonly Intent[], stop: AbortSignal): Promise<boolean> {
      const keys = intents.map(keyOf);
      const mustWait = () =>
        underWay.length >= MOST_UNDER_WAY ||
        underWay.some(({ keys: theirs }) => theirs === undefined || keys.some((key) => theirs.has(key)));
      while (underWay.length > 0 && mustWait() && !stop.aborted) {
        await endOf(underWay[0]!, stop);
        if (!stop.aborted) underWay.shift();
      }
      return !stop.aborted;
    },

    /** These are being started as a slice. */
    begun(intents: readonly Intent[], started: Promise<unknown>): void {
      const workflowId = sliceWorkflowId(intents[0]!.notificationId);
      underWay.push({ workflowId, keys: new Set(intents.map(keyOf)), started });
    },
  };

  /** Whatever comes of it: one that was not started is not waited for. */
  async function endOf({ workflowId, started }: UnderWay, stop: AbortSignal): Promise<void> {
    const over = new AbortController();
    const signal = AbortSignal.any([stop, over.signal]);
    const ended = started.then(() => workflows.getHandle(workflowId).result());
    const isEnough = sleep(LONGEST_WAIT_MS, undefined, { signal });
    await Promise.race([ended.catch(() => undefined), isEnough.catch(() => undefined)]);
    over.abort();
  }
}

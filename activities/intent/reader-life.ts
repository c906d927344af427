/**
 * By what a reader is known to live. Heartbeats would tell Temporal, and each is an Action that Temporal Cloud bills; so
 * they are rare, and the reader shows a sign of life in Redis, which it cannot read without. A process that sees the
 * sign stand still fails the attempt of the reader that has died, and Temporal begins the next one.
 */
import type { Info } from '@temporalio/activity';
import type { Client, WorkflowClient } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { readerKey } from '../../api/intent/stream.ts';
import { BRIDGE_SILENT } from '../../workflows/failures.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import { watchEvery } from '../watch.ts';
import { describe } from '../workflows.ts';

/** Between two signs, and between two looks at them, ms. */
const SIGN_INTERVAL_MS = 1_000;
const SIGN_TTL_MS = 60_000;
/** A sign that stands still for so long is that of a dead reader, ms. With the pause before the next attempt: 10 s. */
const SILENCE_MS = 8_000;
/** After an attempt was failed, until its successor is looked at, ms. */
const NEXT_LOOK_MS = 2_000;

/** How soon a reader hears of a pause, and how long Temporal may take to tell it, ms. */
const TASK_INTERVAL_MS = 2_000;
const TASK_LIMIT_MS = 3_000;

/** `temporal.api.enums.v1.PendingActivityState`; the enum is not among the SDK's exports. */
const [STARTED, CANCEL_REQUESTED, PAUSE_REQUESTED] = [2, 3, 5];
/** A worker has it. What it was asked for meanwhile comes to nothing if that worker has died. */
const WITH_A_WORKER: readonly unknown[] = [STARTED, CANCEL_REQUESTED, PAUSE_REQUESTED];

/** An attempt at reading, in a form that nothing else has. */
const attemptOf = (runId: string, activityId: string, attempt: number): string =>
  `${runId}/${activityId}/${attempt}`;

/**
 * Of two attempts the one that was scheduled later has the sign: an earlier one that was given up, and goes on or only
 * begins when its process wakes up, finds that. A sign fades, so that a clock of Temporal's that was put back does not
 * stop reading for longer. KEYS: sign. ARGV: attempt, when it was scheduled (epoch ms), count, how long the sign stays, ms.
 */
const SHOW_SIGN = `
  local sign = redis.call('GET', KEYS[1])
  local attempt, scheduled = string.match(sign or '', '^(%S+) (%S+)')
  if attempt and attempt ~= ARGV[1] and tonumber(scheduled) > tonumber(ARGV[2]) then return 0 end
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3], 'PX', ARGV[4])
  return 1`;

/**
 * Shows the sign of life of an attempt at reading, from now on each second.
 *
 * @param onReplaced hears that another attempt has begun.
 * @returns ends it. @throws what Redis fails with at the first time; later on that is for the reading to find out.
 */
export async function showLife(
  redis: Redis,
  stream: string,
  { workflowExecution, activityId, attempt, currentAttemptScheduledTimestampMs: scheduledMs }: Info,
  onReplaced: () => void,
): Promise<() => void> {
  const self = attemptOf(workflowExecution?.runId ?? '', activityId, attempt);
  let count = 0;
  const show = async (): Promise<void> => {
    const isOwn = await redis.eval(SHOW_SIGN, 1, readerKey(stream), self, scheduledMs, count, SIGN_TTL_MS);
    count += 1;
    if (isOwn !== 1) onReplaced();
  };
  await show();
  const timer = setInterval(() => void show().catch(() => undefined), SIGN_INTERVAL_MS);
  return () => clearInterval(timer);
}

/**
 * Whether Temporal wants anything of an attempt, which only the answer to a heartbeat can tell it: it is to pause or to
 * stop, or is not the one that counts any more. Describing a workflow is no Action.
 *
 * @returns looks when that is due; false when Temporal does not answer. Never throws.
 */
export function createTaskCheck(
  workflows: WorkflowClient,
  { workflowExecution, activityId, attempt }: Info,
): () => Promise<boolean> {
  let dueAtMs = 0;
  return async () => {
    if (performance.now() < dueAtMs) return false;
    dueAtMs = performance.now() + TASK_INTERVAL_MS;
    try {
      return await workflows.withDeadline(Date.now() + TASK_LIMIT_MS, async () => {
        const described = await describe(workflows, workflowExecution?.workflowId ?? '');
        if (described?.runId !== workflowExecution?.runId) return true;
        const self = described?.raw.pendingActivities?.find((pending) => pending.activityId === activityId);
        return self?.attempt !== attempt || Number(self.state) !== STARTED || self.paused === true;
      });
    } catch {
      return false;
    }
  };
}

interface ReaderWatchOptions {
  redis: Redis;
  client: Client;
  log: Logger;
  stream: string;
}

/**
 * Watches the sign of a stream's reader, by this process's own clock; while Redis does not tell, nothing is concluded. An
 * attempt without a sign was given to a process that does not move: it lives for as long as Temporal hears of it.
 */
export function watchReader({ redis, client, log, stream }: ReaderWatchOptions): { stop(): Promise<void> } {
  const workflowId = bridgeWorkflowId(stream);
  let seen: { sign: string | null; atMs: number } | undefined;
  /** The attempt that runs without a sign, and when Temporal heard of it last. */
  let pulse: string | undefined;
  return watchEvery(SIGN_INTERVAL_MS, look, (reason) => log.warn({ stream, reason }, 'reader not looked at'));

  async function look(): Promise<void> {
    const before = seen;
    seen = undefined;
    const sign = await redis.get(readerKey(stream));
    const nowMs = performance.now();
    if (!before || sign !== before.sign) {
      pulse = undefined;
      seen = { sign, atMs: nowMs };
      return;
    }
    seen = before;
    if (nowMs - before.atMs < SILENCE_MS) return;
    before.atMs = nowMs;
    // Whoever has the next attempt is looked at soon.
    if (await replaceIfDead(sign?.split(' ')[0])) before.atMs -= SILENCE_MS - NEXT_LOOK_MS;
  }

  /** One that waits for its next attempt, or that is paused, has none that could be dead. */
  async function replaceIfDead(silentAttempt: string | undefined): Promise<boolean> {
    const described = await describe(client.workflow, workflowId);
    const reader = described?.raw.pendingActivities?.find(({ state }) =>
      WITH_A_WORKER.includes(Number(state)),
    );
    if (!described || !reader) return false;
    const { runId } = described;
    const { activityId, attempt, lastHeartbeatTime, lastWorkerIdentity } = reader;
    const self = attemptOf(runId, activityId ?? '', attempt ?? 1);
    const before = pulse;
    pulse = JSON.stringify([self, lastHeartbeatTime]);
    if (self !== silentAttempt && pulse !== before) return false;
    log.warn({ stream, worker: lastWorkerIdentity }, 'reader shows no sign of life, another one begins');
    await client.activity.fail(
      { workflowId, runId, activityId: activityId ?? '' },
      ApplicationFailure.retryable('the reader showed no sign of life', BRIDGE_SILENT),
    );
    return true;
  }
}

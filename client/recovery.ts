/**
 * Recovery after a store was put back to an earlier state: what would be done, and doing it as a durable workflow. The
 * service notices most losses by itself; this is for those that it was not running for, and for certainty.
 */
import { beatKey, offsetKey } from '../api/intent/stream.ts';
import { STREAM_START, lastGeneratedId, compareEntryIds } from '../api/stream-ids.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../workflows/intent/reader-contract.ts';
import type { RecoveryInput, RecoveryProgress } from '../workflows/recovery-contract.ts';
import {
  RECOVERY_PROGRESS_QUERY,
  RECOVERY_WORKFLOW,
  RECOVERY_WORKFLOW_ID,
} from '../workflows/recovery-contract.ts';
import { OperationFailedError } from './errors.ts';
import { withoutNulls } from './lists.ts';
import { bounded, statusOf } from './temporal.ts';
import type { OperatorResources } from './resources.ts';
import { linkField } from './resources.ts';
import type { WaitOptions } from './wait-until.ts';
import { waitUntil } from './wait-until.ts';

/** Rows are counted up to here: more is many. */
const COUNTED_AT_MOST = 100_000;

export interface RecoveryPlan {
  /** What does not agree between the stores now; the service repairs most of it by itself within seconds. */
  disagreements: { store: 'Redis' | 'PostgreSQL' | 'Temporal'; what: string }[];
  /** Entries of the intent stream that would be read again: ids; absent when nothing was ever read. */
  readAgain?: { from: string; upTo: string };
  /** Routes whose entries would be looked for, at most 100,000. */
  publishedRoutes: number;
  /** Routes that are overdue for a minute and may have no worker, at most 100,000. */
  overdueRoutes: number;
  /** Intents that wait for their decision. */
  waitingIntents: number;
}

export type RecoveryRequest = Omit<RecoveryInput, 'stream'>;

export interface RecoveryRun {
  progress: RecoveryProgress | undefined;
  isDone: boolean;
  link?: string;
}

/** A row of notification.inbound_streams. */
interface StreamRow {
  beat: string;
  passed_id: string;
}

interface OutboundRow {
  stream: string;
  /** The last entry that was seen in it. */
  seen: string;
  reason: string | null;
}

type WorkRow = Pick<RecoveryPlan, 'publishedRoutes' | 'overdueRoutes' | 'waitingIntents'>;

export function recoveryOperations(resources: OperatorResources) {
  const { temporal, db, redis, intentsStream } = resources;
  const handle = () => temporal.workflow.getHandle(RECOVERY_WORKFLOW_ID);

  return {
    /** What a recovery would do. Changes nothing. */
    async plan({ sinceMs, outbound }: Pick<RecoveryRequest, 'sinceMs' | 'outbound'>): Promise<RecoveryPlan> {
      // Redis first, as each look writes it last: the row may only be newer then.
      const beatInRedis = Number((await redis.get(beatKey('intent', intentsStream)))?.split(' ')[0] ?? 0);
      const copy = await redis.get(offsetKey(intentsStream));
      const [row] = (await db.query<StreamRow>(READ_STREAM, [intentsStream])).rows;
      const [seconds] = await redis.time();
      const { rows: counts } = await db.query<WorkRow>(COUNT_WORK, [sinceMs, COUNTED_AT_MOST]);
      const readAgain = row && { from: `${Number(seconds) * 1_000 - sinceMs}-0`, upTo: row.passed_id };
      return {
        disagreements: [
          ...ofInbound(row, beatInRedis, copy),
          ...(await ofOutbound(outbound)),
          ...(await ofTemporal()),
        ],
        ...withoutNulls({ readAgain }),
        ...counts[0]!,
      };
    },

    /** Starts a recovery; when one runs, that one goes on. @returns whether it is new. */
    async start(request: RecoveryRequest): Promise<{ isNew: boolean; link?: string }> {
      const isRunning = (await statusOf(resources, RECOVERY_WORKFLOW_ID)) === 'RUNNING';
      await bounded(temporal, () =>
        temporal.workflow.start(RECOVERY_WORKFLOW, {
          workflowId: RECOVERY_WORKFLOW_ID,
          taskQueue: INTENT_TASK_QUEUE,
          args: [{ ...request, stream: intentsStream } satisfies RecoveryInput],
          workflowIdConflictPolicy: 'USE_EXISTING',
          staticSummary: `recovery, asked for by ${request.requestedBy}`,
        }),
      );
      return { isNew: !isRunning, ...linkField(resources, RECOVERY_WORKFLOW_ID) };
    },

    /**
     * Follows the recovery that runs, or the last one.
     *
     * @returns how it stood in the end, or when the time was up.
     * @throws OperationFailedError when it failed or an operator ended it.
     */
    async follow({
      onProgress,
      ...wait
    }: WaitOptions & { onProgress?: (progress: RecoveryProgress) => void }): Promise<RecoveryRun> {
      let progress: RecoveryProgress | undefined;
      const link = linkField(resources, RECOVERY_WORKFLOW_ID);
      const done = await waitUntil(async () => {
        const status = await statusOf(resources, RECOVERY_WORKFLOW_ID);
        if (status === 'COMPLETED') return (await handle().result()) as RecoveryProgress;
        if (status !== 'RUNNING')
          throw new OperationFailedError(`the recovery is ${(status ?? 'unknown').toLowerCase()}`);
        // No worker answers while no process runs.
        progress = await bounded(temporal, () =>
          handle().query<RecoveryProgress>(RECOVERY_PROGRESS_QUERY),
        ).catch(() => progress);
        if (progress) onProgress?.(progress);
        return undefined;
      }, wait);
      return { progress: done ?? progress, isDone: done !== undefined, ...link };
    },
  };

  /** @param copy of the offset, in Redis. */
  function ofInbound(
    row: StreamRow | undefined,
    beatInRedis: number,
    copy: string | null,
  ): RecoveryPlan['disagreements'] {
    const order = compareEntryIds(row?.passed_id ?? STREAM_START, copy ?? STREAM_START);
    const found: RecoveryPlan['disagreements'] = [];
    if (order < 0 || beatInRedis > Number(row?.beat ?? 0)) {
      const what = `it knows ${intentsStream} up to ${row?.passed_id ?? 'nothing'}, and knew more`;
      found.push({ store: 'PostgreSQL', what });
    }
    if (row && (copy === null || order > 0)) {
      const what = `${intentsStream} was read up to ${row.passed_id}, and the copy of the offset is ${copy ?? 'gone'}`;
      found.push({ store: 'Redis', what });
    }
    return found;
  }

  async function ofOutbound(streams: readonly string[]): Promise<RecoveryPlan['disagreements']> {
    const { rows } = await db.query<OutboundRow>(READ_OUTBOUND, [streams]);
    const found = rows.map(async ({ stream, seen, reason }) => {
      const last = await lastGeneratedId(redis, stream);
      const isBehind = seen !== STREAM_START && compareEntryIds(last ?? STREAM_START, seen) < 0;
      if (isBehind) return [`${stream} had ${seen}, and ends with ${last ?? 'nothing'}`];
      return reason === null ? [] : [`${stream} is being checked: ${reason}`];
    });
    return (await Promise.all(found)).flat().map((what) => ({ store: 'Redis', what }));
  }

  async function ofTemporal(): Promise<RecoveryPlan['disagreements']> {
    const reader = bridgeWorkflowId(intentsStream);
    const isRunning = (await statusOf(resources, reader)) === 'RUNNING';
    return isRunning ? [] : [{ store: 'Temporal', what: `${reader} does not run` }];
  }
}

const READ_STREAM = 'SELECT beat, passed_id FROM notification.inbound_streams WHERE stream = $1';

const READ_OUTBOUND = `
  SELECT stream, last_entry_id AS seen, suspect_reason AS reason
    FROM notification.outbound_streams
   WHERE stream = ANY ($1)
   ORDER BY stream`;

/** $1 since, ms before now; $2 counted at most. */
const COUNT_WORK = `
  SELECT (SELECT count(*)::int
            FROM (SELECT FROM notification.routes
                   WHERE published_at >= now() - $1::bigint * interval '1 millisecond' LIMIT $2) AS counted) AS "publishedRoutes",
         (SELECT count(*)::int
            FROM (SELECT FROM notification.routes
                   WHERE next_attempt_at < now() - interval '1 minute' LIMIT $2) AS counted) AS "overdueRoutes",
         (SELECT count(*)::int FROM (SELECT FROM notification.intents WHERE status = 'open' LIMIT $2) AS counted) AS "waitingIntents"`;

/**
 * The reader's watch over the streams that routes leave by. A Redis that was restarted, switched or restored may have
 * lost what it had acknowledged: only PostgreSQL remembers how far the stream had come. What looks suspicious is left to
 * the workflow that repairs it.
 */
import type { WorkflowClient } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import { REPAIR_WORKFLOW, repairWorkflowId } from '../../workflows/intent/repair-contract.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { LongLivedWorkflow } from '../workflows.ts';
import { keepRunning } from '../workflows.ts';
import type { IntentMetrics } from './metrics.ts';
import type { OutboundRow } from '../outbound-state.ts';
import {
  LOAD_OUTBOUND,
  SAVE_OUTBOUND,
  SUSPECT_OUTBOUND,
  databaseOf,
  lookAtOutbound,
  seenOf,
  suspectValues,
  suspicionOf,
  valuesOf,
} from '../outbound-state.ts';

const LOOK_INTERVAL_MS = 1_000;
/** In lease times: attempts that were being made have ended, and their rows are written. */
const SETTLING_LEASES = 6;

export interface OutboundWatchResources {
  db: Pool;
  redis: Redis;
  workflows: WorkflowClient;
  log: Logger;
  metrics: IntentMetrics;
  route: { gatewayStream: string; mailStream: string; leaseTtlMs: number };
}

/** @returns looks at the outbound streams when that is due. Never throws; a look that fails is made again. */
export function watchOutbound({
  db,
  redis,
  workflows,
  log,
  metrics,
  route: { gatewayStream, mailStream, leaseTtlMs },
}: OutboundWatchResources): () => Promise<void> {
  const streams = [...new Set([gatewayStream, mailStream])];
  const failing = new Set<string>();
  /** As their rows say that they were last seen whole. */
  const saved = new Map<string, string>();
  let dueAtMs = 0;

  return async () => {
    if (performance.now() < dueAtMs) return;
    dueAtMs = performance.now() + LOOK_INTERVAL_MS;
    await Promise.all(
      streams.map(async (stream) => {
        try {
          await look(stream);
          failing.delete(stream);
        } catch (error) {
          if (!failing.has(stream))
            log.warn({ stream, reason: reasonOf(error) }, 'outbound stream not looked at');
          failing.add(stream);
        }
      }),
    );
  };

  async function look(stream: string): Promise<void> {
    const now = await lookAtOutbound(redis, stream);
    const values = valuesOf(now);
    if (saved.get(stream) === values.join(' ')) return;
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    const suspicion = row && suspicionOf(seenOf(row), now);
    if (suspicion === undefined) {
      // Again at each look: a workflow may get lost as well.
      if (row?.suspect_since) return startRepair(stream, row.suspect_reason!);
      await query(db, SAVE_OUTBOUND, [stream, ...values]);
      saved.set(stream, values.join(' '));
      return;
    }
    saved.delete(stream);
    const [isNew] = await query(db, SUSPECT_OUTBOUND, suspectValues(stream, row!, now, suspicion));
    if (isNew) {
      metrics.outboundSuspicion({ stream });
      log.warn(
        { stream, reason: suspicion },
        'outbound stream may have lost entries, its routes are checked',
      );
    }
    await startRepair(stream, suspicion);
  }

  async function startRepair(stream: string, reason: string): Promise<void> {
    await keepRunning(workflows, repairOf(stream, reason, { leaseTtlMs }));
  }
}

/** The workflow that repairs an outbound stream. */
export const repairOf = (
  stream: string,
  reason: string,
  { leaseTtlMs }: { leaseTtlMs: number },
): LongLivedWorkflow => ({
  workflowType: REPAIR_WORKFLOW,
  workflowId: repairWorkflowId(stream),
  taskQueue: INTENT_TASK_QUEUE,
  args: [stream, SETTLING_LEASES * leaseTtlMs],
  staticSummary: `checks ${stream}: ${reason}`,
});

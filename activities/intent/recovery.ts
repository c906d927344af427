/** What an operator's recovery asks of the reader and of the repair of outbound streams. */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { loadOffset } from '../../api/intent/stream.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import type { RepairProgress } from '../../workflows/intent/repair-contract.ts';
import type { RecoveryProgress, RestoredStream } from '../../workflows/recovery-contract.ts';
import { withHeartbeats } from '../heartbeat.ts';
import { query } from '../postgres.ts';
import { keepRunning } from '../workflows.ts';
import { repairOf } from './repair.ts';

interface RecoveryResources {
  db: Pool;
  redis: Redis;
  workflows: WorkflowClient;
  route: { leaseTtlMs: number };
}

type ReadAgain = NonNullable<RecoveryProgress['readAgain']>;

export type RecoveryActivities = ReturnType<typeof createRecoveryActivities>;

export function createRecoveryActivities({ db, redis, workflows, route }: RecoveryResources) {
  return {
    /**
     * Asks the reader to go back in time, by the clock of Redis, which gives the entries their ids.
     *
     * @returns undefined when nothing of the stream was ever read.
     */
    async readAgainSince(stream: string, sinceMs: number): Promise<ReadAgain | undefined> {
      const [seconds] = await redis.time();
      const from = `${Math.max(0, Number(seconds) * 1_000 - sinceMs)}-0`;
      const [asked] = await query<{ passed_id: string }>(db, ASK_TO_REWIND, [stream, from]);
      return asked && { from, upTo: asked.passed_id };
    },

    /** @throws ApplicationFailure `NotReadAgain`, retried, until the reader has gone back and is where it was. */
    async awaitReadAgain(stream: string, { from, upTo }: ReadAgain): Promise<void> {
      const [row] = await query<{ rewind_to: string | null }>(db, READ_REWIND, [stream]);
      if (row?.rewind_to === from) throw notYet('the reader has not gone back yet: see bridge status');
      const offset = await loadOffset(redis, stream);
      if (compareEntryIds(offset, upTo) < 0) throw notYet(`the reader is at ${offset} of ${upTo}`);
    },

    /** Looks for the entries of all routes that were published so long ago at most, and hands off again what is gone. */
    async restoreOutbound(stream: string, sinceMs: number, requestedBy: string): Promise<RestoredStream> {
      const total: RestoredStream = { stream, checked: 0, repaired: 0 };
      await query(db, SUSPECT_SINCE, [stream, `asked for by ${requestedBy}`, sinceMs]);
      await withHeartbeats(async () => {
        // A repair that was going on does not end this suspicion.
        while (await isSuspect(stream)) {
          const handle = await keepRunning(workflows, repairOf(stream, `asked for by ${requestedBy}`, route));
          const { checked, repaired } = (await handle.result()) as RepairProgress;
          total.checked += checked;
          total.repaired += repaired;
          Context.current().cancellationSignal.throwIfAborted();
        }
      });
      return total;
    },
  };

  async function isSuspect(stream: string): Promise<boolean> {
    const [row] = await query<{ is_suspect: boolean }>(db, IS_SUSPECT, [stream]);
    return row?.is_suspect ?? false;
  }
}

const notYet = (message: string): ApplicationFailure =>
  ApplicationFailure.create({ type: 'NotReadAgain', message, nextRetryDelay: '1 second' });

/** $1 stream, $2 from where. */
const ASK_TO_REWIND = {
  name: 'ask_to_rewind',
  text: 'UPDATE notification.inbound_streams SET rewind_to = $2 WHERE stream = $1 RETURNING passed_id',
};

const READ_REWIND = {
  name: 'read_rewind',
  text: 'SELECT rewind_to FROM notification.inbound_streams WHERE stream = $1',
};

/** Whoever clears the suspicion that was there finds another one. $1 stream, $2 why, $3 how far back, ms. */
const SUSPECT_SINCE = {
  name: 'suspect_outbound_since',
  text: `
    UPDATE notification.outbound_streams
       SET suspect_since = clock_timestamp(), suspect_reason = $2,
           seen_at = LEAST(seen_at, clock_timestamp() - $3::bigint * interval '1 millisecond')
     WHERE stream = $1`,
};

const IS_SUSPECT = {
  name: 'is_outbound_suspect',
  text: 'SELECT suspect_since IS NOT NULL AS is_suspect FROM notification.outbound_streams WHERE stream = $1',
};

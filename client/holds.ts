/**
 * Pausing and resuming what operators hold. Workers go by the row (workflows/hold-contract.ts), so a pause is written there first:
 * it holds from then on, whatever Temporal has to do. The workflow that steers by the row is told afterwards. It makes the change
 * of a resume itself, since it releases what waited.
 */
import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Hold, HoldKey, HoldRequest, ResumeRequest } from '../workflows/hold-contract.ts';
import {
  PAUSE_UPDATE,
  RESUME_UPDATE,
  SET_HOLD,
  holdValues,
  problemOfHold,
} from '../workflows/hold-contract.ts';
import { OperationFailedError } from './errors.ts';
import type { Asked } from './temporal.ts';
import { ask } from './temporal.ts';

/** Writes a pause. @throws OperationFailedError for a text that cannot be stored; what PostgreSQL throws. */
export async function writePause(db: Pool, key: HoldKey, request: HoldRequest): Promise<Hold> {
  const problem = problemOfHold(request);
  if (problem !== undefined) throw new OperationFailedError(problem);
  const { rows } = await db.query<{ hold: Hold }>(SET_HOLD, holdValues(key, true, request));
  return rows[0]!.hold;
}

/** Tells the workflow that steers by the hold. @returns its state. @throws as `ask`. */
export const tellHold = <State>(
  temporal: Client,
  verb: 'pause' | 'resume',
  request: ResumeRequest,
  asked: Asked,
): Promise<State> =>
  ask(temporal, asked, (handle) =>
    handle.executeUpdate<State, [ResumeRequest]>(verb === 'pause' ? PAUSE_UPDATE : RESUME_UPDATE, {
      args: [request],
    }),
  );

/** Whether operators hold something. Owns the SQL of `notification.holds` (workflows/hold-contract.ts). */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Hold, HoldKey, ResumeRequest } from '../workflows/hold-contract.ts';
import { HOLD, SET_HOLD, holdValues } from '../workflows/hold-contract.ts';
import { query } from './postgres.ts';

export type HoldActivities = ReturnType<typeof createHoldActivities>;

export function createHoldActivities({ db, log }: { db: Pool; log: Logger }) {
  return {
    /** As the row says. */
    loadHold: (key: HoldKey): Promise<Hold> => loadHold(db, key),

    /** From the return on, nothing begins that the hold forbids. @returns what the row says now. */
    async setHold(key: HoldKey, isPaused: boolean, request: ResumeRequest): Promise<Hold> {
      const [row] = await query<{ hold: Hold }>(db, SET, holdValues(key, isPaused, request));
      const { requestedBy, reason } = row!.hold;
      log.warn(
        { [key.kind]: key.name, requested_by: requestedBy, ...(reason === undefined ? {} : { reason }) },
        `${key.kind} ${isPaused ? 'paused' : 'resumed'}`,
      );
      return row!.hold;
    },
  };
}

export async function loadHold(db: Pool, { kind, name }: HoldKey): Promise<Hold> {
  const [row] = await query<{ hold: Hold }>(db, LOAD, [kind, name]);
  return row!.hold;
}

const LOAD = {
  name: 'load_hold',
  text: `
    SELECT ${HOLD}
      FROM (VALUES ($1::text, $2::text)) AS wanted (kind, name)
      LEFT JOIN notification.holds USING (kind, name)`,
};

/** The same as of operators' programs. */
const SET = { name: 'set_hold', text: `${SET_HOLD}` };

/** How often the key has sealed that seals now, over all processes and their lives. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { gaugeRead, observeReads } from '../activities/gauges.ts';
import { query } from '../activities/postgres.ts';

const SEALS = 'notification.keys.seals';

/** @returns ends the observation; call it before the connection is closed. */
export function observeKeySeals(meter: Meter, { db, log }: { db: Pool; log: Logger }): () => void {
  const seals = gaugeRead({
    what: 'seals by key',
    gauges: {
      [SEALS]: {
        description: 'Values and payloads sealed by all processes, ever, with the key that sealed last',
      },
    },
    async read() {
      const rows = await query<{ purpose: string; key_id: string; seals: number }>(db, READ_KEY_SEALS, []);
      return rows.map(({ purpose, key_id: key, seals: value }) => ({
        gauge: SEALS,
        value,
        attributes: { purpose, key },
      }));
    },
  });
  return observeReads(meter, log, [seals]);
}

/** Of each purpose the one in use: another one does not wear any more, however often it has sealed. */
const READ_KEY_SEALS = {
  name: 'read_key_seals',
  text: `
    SELECT DISTINCT ON (purpose) purpose, key_id, seals::float8 AS seals
      FROM notification.key_seals
     ORDER BY purpose, last_sealed_at DESC`,
};

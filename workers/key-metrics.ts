/** How often each key of encryption has sealed, over all processes and their lives. */
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
    gauges: { [SEALS]: { description: 'Values and payloads sealed with a key by all processes, ever' } },
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

const READ_KEY_SEALS = {
  name: 'read_key_seals',
  text: `
    SELECT purpose, key_id, seals::float8 AS seals
      FROM notification.key_seals
     ORDER BY last_sealed_at DESC
     LIMIT 20`,
};

/**
 * 100,000 intents for later that are due within one minute: how long until all are delivered, and what new intents
 * notice of it.
 */
import type { Intent } from '../api/intent/entry.ts';
import { writeOpenRows } from '../dev/intent-rows.ts';
import type { Part } from './environment.ts';
import { intentFor } from './intent.ts';
import { besideNewIntents } from './scale-recovery.ts';

const INTENTS = 100_000;
const BATCH_SIZE = 500;

export const scaleDue = besideNewIntents({
  name: 'scale.due',
  part: 'direct',
  work: `${INTENTS} intents that are due within one minute`,
  done: { row: 'delivered', meaning: 'from the beginning of the minute until all of them are published' },
  longestS: 180,
  plant,
  countLeft,
});

/** Ids of entries of long ago, which nothing that the benchmark publishes has. */
const ID_TIME = 1_600_000_000_000;

/** Their minute begins when all are there. */
async function plant({ db }: Part): Promise<void> {
  const deliverAtMs = Date.now() + 86_400_000;
  for (let from = 0; from < INTENTS; from += BATCH_SIZE) {
    const intents = Array.from({ length: BATCH_SIZE }, (_, n): Intent => {
      const notificationId = `${ID_TIME}-${from + n}`;
      return { ...intentFor(1), notificationId, deliverAtMs };
    });
    await writeOpenRows(db, intents);
  }
  await db.query('VACUUM (ANALYZE) notification.intents');
  await db.query(
    "UPDATE notification.intents SET due_at = now() + random() * interval '1 minute' WHERE status = 'open'",
  );
}

async function countLeft({ db }: Part): Promise<number> {
  const { rows } = await db.query<{ left: number }>(
    `SELECT ((SELECT count(*) FROM notification.intents WHERE status = 'open' AND notification_id LIKE $1)
             + (SELECT count(*) FROM notification.routes WHERE next_attempt_at IS NOT NULL AND notification_id LIKE $1)
            )::int AS left`,
    [`${ID_TIME}-%`],
  );
  return rows[0]!.left;
}

/** Rows of intents, as the reader writes them, for tests and measurements without a reader. */
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import { pino } from 'pino';
import type { StreamPosition } from '../activities/intent/entries.ts';
import { loadPosition, saveEntries } from '../activities/intent/entries.ts';
import type { ToDispatch } from '../activities/intent/dispatch.ts';
import { startNotification } from '../activities/intent/dispatch.ts';
import { isUrgentType } from '../api/intent/catalog.ts';
import { GALAXY } from '../api/intent/galaxy.ts';
import type { Intent } from '../api/intent/entry.ts';
import { STREAM_START } from '../api/stream-ids.ts';
import type { DispatchMode } from '../workflows/intent/contract.ts';

/** No reader knows of this stream. */
const STREAM = 'written';

const made = new WeakMap<Pool, Promise<StreamPosition>>();

/** Writes rows of intents, which a dispatcher takes. */
export async function writeOpenRows(db: Pool, intents: readonly Intent[]): Promise<void> {
  const loading = made.get(db) ?? loadPosition(db, STREAM, STREAM_START);
  made.set(db, loading);
  const position = await loading;
  const entries = intents.map((intent) => ({ id: intent.notificationId, ok: true as const, intent }));
  const resources = {
    ...{ db, catalog: GALAXY },
    metrics: { intentMalformed: () => undefined },
    log: pino({ level: 'silent' }),
  };
  await saveEntries(resources, STREAM, entries, position, position);
}

/** Writes rows of intents that no dispatcher takes: the caller starts their workflows. */
export async function writeRows(db: Pool, intents: readonly Intent[]): Promise<void> {
  await writeOpenRows(db, intents);
  await db.query('UPDATE notification.intents SET dispatched_at = now() WHERE notification_id = ANY ($1)', [
    intents.map(({ notificationId }) => notificationId),
  ]);
}

export const toDispatch = (intent: Intent): ToDispatch => {
  const { notificationId, notificationType, producer, audienceKind, idempotencyKey } = intent;
  return {
    ...{ notificationId, notificationType, producer, audienceKind, idempotencyKey },
    ...{ isUrgent: isUrgentType(GALAXY, notificationType), recipients: intent.recipientUserIds.length },
  };
};

/** Writes the row of an intent and starts its workflow. */
export async function beginIntent(
  { db, workflows }: { db: Pool; workflows: WorkflowClient },
  intent: Intent,
  dispatch: DispatchMode = 'child',
): Promise<void> {
  await writeRows(db, [intent]);
  await startNotification(workflows, toDispatch(intent), { dispatch, isEager: false });
}

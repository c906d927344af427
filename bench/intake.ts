/** How fast the reader's statement turns entries into rows: what a backlog that is read costs before anything else happens. */
import { randomUUID } from 'node:crypto';
import type { Intent } from '../api/intent/entry.ts';
import { writeOpenRows } from '../dev/intent-rows.ts';
import { migrate } from '../migrations/migrate.ts';
import { intentFor } from './intent.ts';
import type { Measurement } from './measurement.ts';
import { medianOf } from './rounds.ts';

/** Largest batch of the reader. */
const BATCH_SIZE = 500;
const BATCHES = 40;
const LEAST_PER_SECOND = 5_000;

export const intake: Measurement = {
  name: 'intake',
  meaning: 'validated entries that become rows',
  isQuick: true,
  rows: [
    {
      name: 'intake.rows',
      unit: '/s',
      target: { atLeast: LEAST_PER_SECOND },
      meaning: `rows of intents, by statements of ${BATCH_SIZE} that move the offset as well`,
    },
  ],

  async run(bench) {
    const part = await bench.part('intake');
    await migrate(part.env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!);
    const rates: number[] = [];
    for (let round = 0; round < bench.sizes.rounds; round += 1) {
      const batches = Array.from({ length: BATCHES }, intents);
      const startedAtMs = performance.now();
      for (const batch of batches) await writeOpenRows(part.db, batch);
      rates.push((1_000 * BATCHES * BATCH_SIZE) / (performance.now() - startedAtMs));
    }
    return [medianOf('intake.rows', rates)];
  },
};

const intents = (): Intent[] =>
  Array.from({ length: BATCH_SIZE }, (_, n) => ({
    ...intentFor(1),
    notificationId: `${Date.now()}-${n}${randomUUID().replaceAll(/\D/g, '').slice(0, 8)}`,
  }));

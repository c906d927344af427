/** What becomes of a setting that a process writes after it stood still. */
import { metrics } from '@opentelemetry/api';
import { createHttpCaller } from '../../activities/http/caller.ts';
import { createSymbolConfigActivities } from '../../activities/symbol-config/activities.ts';
import { createSymbolConfigMetrics } from '../../activities/symbol-config/metrics.ts';
import { createLogger } from '../../workers/logger.ts';
import { slotOfTests } from '../harness.ts';
import { REFUSED, runLate } from '../late-attempts.ts';

const caller = createHttpCaller();

const slot = slotOfTests();
afterAll(async () => {
  caller.close();
});

test('kinds-F2 a late setting of the crawler does not take the place of the newer one', async () => {
  const activities = createSymbolConfigActivities({
    ...{ db: slot.db, log: createLogger('silent'), caller },
    metrics: createSymbolConfigMetrics(metrics.getMeter('test')),
    symbols: { pushTimeoutMs: 1_000, retryLadderMs: [1_000], reconciliationMs: 900_000 },
  });
  const late = await runLate(slot, activities, {
    ...{ name: 'setSymbolCrawler', args: ['r', { enabled: false, intervalMs: 60_000 }, 'nina'] },
    between: () => activities.setSymbolCrawler('r', { enabled: true, intervalMs: 120_000 }, 'otto'),
  });
  expect(late).toMatchObject(REFUSED);
  const { crawler } = await activities.loadSymbolConfig('r');
  expect(crawler).toEqual({ enabled: true, intervalMs: 120_000 });
});

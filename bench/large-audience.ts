/** One intent for 10,000 recipients: whether it completes, how long its histories get, and what it takes in memory. */
import { NOTIFICATION_WORKFLOW, ROUTE_WORKFLOW } from '../workflows/intent/contract.ts';
import type { Bench, Mode, Part } from './environment.ts';
import { MODES } from './environment.ts';
import { ROUTES_PER_RECIPIENT, burst, countHandOffs, serviceOf } from './intent.ts';
import type { Finding, Measurement } from './measurement.ts';
import { watchMemory } from './processes.ts';

const RECIPIENTS = 10_000;
const ROUTES = RECIPIENTS * ROUTES_PER_RECIPIENT;
const LONGEST_HISTORY = 10_000;
const MOST_SECONDS = 30;
const MOST_GROWTH_MB = 150;
const SAMPLE_INTERVAL_MS = 250;
/** The service should have done something before: what it needs anyway is no growth. */
const WARM_UP_INTENTS = 100;

/** One for each mode: they take minutes. */
export const largeAudiences = MODES.map((mode): Measurement => ({
  name: `large-audience.${mode}`,
  meaning: `one intent for ${RECIPIENTS} recipients`,
  isQuick: false,
  rows: [
    {
      name: `large-audience.${mode}.published`,
      unit: '',
      target: { atLeast: ROUTES },
      meaning: 'routes that were published',
    },
    {
      name: `large-audience.${mode}.seconds`,
      unit: 's',
      target: { atMost: MOST_SECONDS },
      meaning: 'until the notification was complete',
    },
    {
      name: `large-audience.${mode}.longest-history`,
      unit: '',
      target: { atMost: LONGEST_HISTORY },
      meaning: 'events of the longest history',
    },
    {
      name: `large-audience.${mode}.memory-growth`,
      unit: 'MB',
      target: { atMost: MOST_GROWTH_MB },
      meaning: 'resident memory of the service, highest above the start',
    },
  ],
  run: (bench) => measure(bench, mode),
}));

async function measure(bench: Bench, mode: Mode): Promise<Finding[]> {
  const [part, service] = [await bench.part(mode), await serviceOf(bench, mode)];
  await burst(bench, mode, WARM_UP_INTENTS);
  bench.report(`${mode}: ${RECIPIENTS} recipients`);
  const before = await countHandOffs(part);
  const memory = watchMemory(service.pid, SAMPLE_INTERVAL_MS);
  const round = await burst(bench, mode, 1, RECIPIENTS).finally(() => memory.stop());
  const row = (name: string) => `large-audience.${mode}.${name}`;
  const start = memory.samples[0]?.mb;
  return [
    // A burst has not ended before all of its routes are published; more would be a duplicate.
    { row: row('published'), value: (await countHandOffs(part)) - before },
    { row: row('seconds'), value: round.seconds, details: round },
    { row: row('longest-history'), value: await longestHistory(part, round.beganAtMs) },
    ...(start === undefined
      ? []
      : [
          {
            row: row('memory-growth'),
            value: Math.max(...memory.samples.map(({ mb }) => mb)) - start,
            details: { samples: memory.samples },
          },
        ]),
  ];
}

/** Of the notification and its batches. Its routes are many and short: the server looks for a long one itself. */
async function longestHistory({ client }: Part, sinceMs: number): Promise<number> {
  const since = new Date(sinceMs).toISOString();
  const own = `NotificationId IS NOT NULL AND StartTime >= '${since}'`;
  let longest = 0;
  let notifications = 0;
  for await (const { historyLength, type } of client.workflow.list({
    query: `${own} AND (WorkflowType != '${ROUTE_WORKFLOW}' OR HistoryLength > ${LONGEST_HISTORY})`,
  })) {
    longest = Math.max(longest, historyLength);
    if (type === NOTIFICATION_WORKFLOW) notifications += 1;
  }
  if (notifications !== 1) throw new Error(`found ${notifications} notifications instead of one`);
  return longest;
}

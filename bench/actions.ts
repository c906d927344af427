/**
 * What Temporal Cloud would bill for: Actions, as the server itself counts them in its metric `action`. For an intent in
 * each way, and for a service that has nothing to do.
 */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROLE_NAMES } from '../config/load.ts';
import type { Bench, PartName, Way } from './environment.ts';
import { WAYS, namespaceOf } from './environment.ts';
import { burst } from './intent.ts';
import type { Finding, Measurement } from './measurement.ts';
import { medianOf } from './rounds.ts';

/** For an intent with two routes. */
const MOST: Record<Way, number> = { child: 9, on_failure: 2.2, direct: 0 };
const MOST_A_DAY = 25_000;
const DAY_SECONDS = 86_400;

const INTENTS: Record<Way, number> = { child: 60, on_failure: 200, direct: 2_000 };
/** Long-lived workflows take their first steps, s. */
const SETTLING_SECONDS = 30;
/** As long as the longest interval that is not of hours: the alarms of account callbacks, s. */
const IDLE_SECONDS = 300;
/** Of the reader, however many intents it reads: part of what an idle service costs. */
const HEARTBEAT = 'grpc_RecordActivityTaskHeartbeat';

export const actions: Measurement = {
  name: 'actions',
  meaning: "what Temporal Cloud bills, by the server's own count",
  isQuick: false,
  rows: [
    ...WAYS.map((way) => ({
      name: `actions.${way}`,
      unit: '',
      target: { atMost: MOST[way] },
      meaning: 'Actions for an intent with two routes',
    })),
    {
      name: 'actions.idle',
      unit: '/day',
      target: { atMost: MOST_A_DAY },
      meaning: 'Actions of a service with all roles that has nothing to do',
    },
  ],

  async run(bench) {
    const findings: Finding[] = [];
    for (const way of WAYS) findings.push(await costOf(bench, way));
    findings.push(await idle(bench));
    return findings;
  },
};

async function costOf(bench: Bench, way: Way): Promise<Finding> {
  const count = INTENTS[way];
  await burst(bench, way, count);
  const spent = await spentBy(bench, way, () => burst(bench, way, count));
  const details = ofEach(spent, count);
  delete details[HEARTBEAT];
  const value = sumOf(details);
  bench.report(`${way}: ${value.toPrecision(3)} Actions for an intent`);
  return { ...medianOf(`actions.${way}`, [value]), details };
}

/** Of what comes once an hour, the time is likely to have none; it has all that comes at least every five minutes. */
async function idle(bench: Bench): Promise<Finding> {
  await bench.service('idle', {
    NOTIFICATION_ROLES: ROLE_NAMES.join(','),
    NOTIFICATION_DATA_DIR: path.join(bench.dataDir, 'idle'),
    NOTIFICATION_DEV_BASE_PORT: '0',
  });
  await sleep(1_000 * SETTLING_SECONDS);
  const spent = await spentBy(bench, 'idle', () => sleep(1_000 * IDLE_SECONDS));
  await bench.stopService('idle');
  const details = ofEach(spent, IDLE_SECONDS / DAY_SECONDS);
  return { ...medianOf('actions.idle', [sumOf(details)]), details };
}

/** Actions by their type. */
type Spent = Record<string, number>;

/** @returns what a part's namespace has spent meanwhile. */
async function spentBy(bench: Bench, part: PartName, work: () => Promise<unknown>): Promise<Spent> {
  const before = actionsOf(await bench.temporalMetrics(), namespaceOf(part));
  await work();
  const after = actionsOf(await bench.temporalMetrics(), namespaceOf(part));
  return Object.fromEntries(
    Object.entries(after).map(([type, count]) => [type, count - (before[type] ?? 0)]),
  );
}

const ACTION = /^action\{(.*)\} (\S+)$/gm;
const LABEL = /(\w+)="([^"]*)"/g;

/** @param metrics in the text format of Prometheus. @returns a namespace's Actions so far, by their type. */
export function actionsOf(metrics: string, namespace: string): Spent {
  // As the server's exporter writes values.
  const name = namespace.replace(/\W/g, '_');
  const spent: Spent = {};
  for (const [, labels = '', count] of metrics.matchAll(ACTION)) {
    const label = new Map([...labels.matchAll(LABEL)].map(([, key = '', value]) => [key, value]));
    const type = label.get('action_type');
    if (label.get('namespace') !== name || type === undefined) continue;
    spent[type] = (spent[type] ?? 0) + Number(count);
  }
  return spent;
}

const ofEach = (spent: Spent, count: number): Spent =>
  Object.fromEntries(
    Object.entries(spent).flatMap(([type, total]) => (total > 0 ? [[type, total / count]] : [])),
  );

const sumOf = (spent: Spent): number => Object.values(spent).reduce((sum, count) => sum + count, 0);

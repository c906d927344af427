/**
 * 10,000 connections on two messaging routers, from their creation until the rows and the routers agree that they are
 * subscribed; and the same beside a third router that takes requests and answers none.
 */
import { importNewQueues } from '../dev/stand-ins/subscription/queues.ts';
import type { Bench } from './environment.ts';
import type { Measurement } from './measurement.ts';
import { cpuSecondsOf, watchMemory } from './processes.ts';
import { medianOf, until } from './rounds.ts';
import { ratios } from './statistics.ts';
import type { Installation } from './subscription.ts';
import { AGENT, LOOK_INTERVAL_MS, installSubscriptions } from './subscription.ts';

const CONNECTIONS = 10_000;
/** Two to measure, and one to be silent. */
const ROUTERS = 3;
const USERS = [1, 2, 3, 4];
/** Users each of whom waits for the silent router: a batch. */
const CROWD = 150;
const MEMORY_INTERVAL_MS = 250;
const SECOND_MS = 1_000;
const MOST_RATIO = 1.5;
const ROW = 'scale.routers';

export const scaleRouters: Measurement = {
  name: ROW,
  meaning: `${CONNECTIONS} connections on two messaging routers, from creation to subscribed`,
  isQuick: false,
  rows: [
    { name: `${ROW}.time`, unit: 's', meaning: 'from creation to subscribed' },
    { name: `${ROW}.memory`, unit: 'MB', meaning: 'the most memory that the service takes meanwhile' },
    { name: `${ROW}.cpu`, unit: 's', meaning: 'CPU time of the service' },
    {
      name: `${ROW}.one-silent`,
      unit: '',
      target: { atMost: MOST_RATIO },
      meaning: `the time beside a third router that is silent, for which ${CROWD} users wait, by that without`,
    },
  ],
  run: measure,
};

type Shape = 'answering' | 'silent';

interface Cost {
  seconds: number;
  cpuSeconds: number;
  memoryMb: number;
}

async function measure(bench: Bench) {
  const { longRounds } = bench.sizes;
  const installation = await installSubscriptions(bench, 'routers', { routers: ROUTERS });
  const shapes: Record<Shape, () => Promise<Cost>> = {
    answering: () => subscribed(installation),
    silent: () => besideSilence(installation),
  };
  const found: Record<Shape, Cost[]> = { answering: [], silent: [] };
  try {
    for (let round = 1; round <= longRounds; round += 1) {
      for (const shape of ['answering', 'silent'] as const) {
        const cost = await shapes[shape]();
        const { seconds, cpuSeconds, memoryMb } = cost;
        bench.report(
          `Round ${round} of ${longRounds}: ${shape} ${seconds.toFixed(1)} s, CPU ${cpuSeconds.toFixed(1)} s, ${Math.round(memoryMb)} MB`,
        );
        found[shape].push(cost);
      }
    }
  } finally {
    await bench.stopService('routers');
  }
  const all = (shape: Shape, what: keyof Cost) => found[shape].map((cost) => cost[what]);
  return [
    { ...medianOf(`${ROW}.time`, all('answering', 'seconds')), details: found },
    medianOf(`${ROW}.memory`, all('answering', 'memoryMb')),
    medianOf(`${ROW}.cpu`, all('answering', 'cpuSeconds')),
    medianOf(`${ROW}.one-silent`, ratios(all('silent', 'seconds'), all('answering', 'seconds'))),
  ];
}

/** Makes the connections, and waits until records and routers agree that they are subscribed. */
async function subscribed(installation: Installation): Promise<Cost> {
  const { service, operator, routers, notifications } = installation;
  const before = await countSubscribed(installation);
  const memory = watchMemory(service.pid, MEMORY_INTERVAL_MS);
  const cpuBefore = cpuSecondsOf([service.pid]) ?? Number.NaN;
  const beganAt = performance.now();
  // Each user's connections are made one after the other, half of them on either router.
  await Promise.all(
    USERS.map((userId, index) => {
      const server = routers[index % 2]!.address;
      const count = CONNECTIONS / USERS.length;
      return importNewQueues(
        operator.subscriptions,
        Array.from({ length: count }, () => ({ userId, server })),
      );
    }),
  );
  const wanted = before + CONNECTIONS;
  await until(
    `${CONNECTIONS} subscriptions`,
    LOOK_INTERVAL_MS,
    async () => (await countSubscribed(installation)) >= wanted && activeOn(notifications) >= wanted,
  );
  const seconds = (performance.now() - beganAt) / SECOND_MS;
  memory.stop();
  return {
    seconds,
    cpuSeconds: (cpuSecondsOf([service.pid]) ?? Number.NaN) - cpuBefore,
    memoryMb: Math.max(...memory.samples.map(({ mb }) => mb)),
  };
}

/** The same, while a crowd waits for a router that answers nothing. */
async function besideSilence(installation: Installation): Promise<Cost> {
  const { operator, routers } = installation;
  const silent = routers.at(-1)!;
  const crowd = await importNewQueues(
    operator.subscriptions,
    Array.from({ length: CROWD }, (_, user) => ({
      ...{ userId: user + 1, server: silent.address, enableNotifications: false },
    })),
  );
  const before = silent.calls.length;
  silent.fail({ failure: { kind: 'silence' } });
  await operator.subscriptions.toggle(crowd, true);
  await until('the silent router to be asked', LOOK_INTERVAL_MS, () => silent.calls.length > before);
  const cost = await subscribed(installation);
  const since = silent.calls.slice(before);
  if (since.some(({ answer }) => answer === 'NID')) throw new Error('the silent router has answered');
  const withCrowd = (await countSubscribed(installation)) + CROWD;
  silent.heal();
  await until(
    'those of the silent router',
    LOOK_INTERVAL_MS,
    async () => (await countSubscribed(installation)) >= withCrowd,
  );
  return cost;
}

async function countSubscribed({ part: { db } }: Installation): Promise<number> {
  const { rows } = await db.query<{ count: number }>(COUNT_SUBSCRIBED, [AGENT]);
  return rows[0]!.count;
}

const activeOn = (notifications: Installation['notifications']): number =>
  notifications.subscriptions().filter(({ status }) => status === 'ACTIVE').length;

/** What waits for its first check is subscribed. */
const COUNT_SUBSCRIBED = `
  SELECT count(*)::int AS count FROM subscriptions.ntf_subscriptions WHERE agent_id = $1 AND ntf_action = 'C'`;

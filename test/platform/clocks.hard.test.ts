/**
 * All kinds of work, under way while the clock of one process or server is moved by a day: what becomes of it is the same,
 * only when differs.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { openCallbackWork } from '../account-callback/open-work.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { openIntentWork } from '../intent/open-work.ts';
import { openMobileWork } from '../mobile-push/open-work.ts';
import { moveClock } from '../moved-clock.ts';
import type { OpenWork } from '../open-work.ts';
import type { ServiceProcess } from '../service-process.ts';
import { createFleet } from '../service-process.ts';
import type { OwnStack } from '../own-stack.ts';
import { startOwnStack } from '../own-stack.ts';
import { openSubscriptionWork } from '../subscription/open-work.ts';
import { openSymbolWork } from '../symbol-config/open-work.ts';

const DAY = 86_400;

let own: OwnStack;
let slot: Slot;
let fleet: ReturnType<typeof createFleet>;
let works: OpenWork[] = [];

/** Each test has its own servers: other tests must not have a wrong clock, and a server's may not be put right again. */
beforeEach(async () => {
  own = await startOwnStack('clocks', { durable: false });
}, 120_000);
afterEach(async () => {
  await fleet?.killAll();
  for (const work of works) await work.release();
  await slot?.release();
  await own.stop();
}, 120_000);

async function beginWork(): Promise<ServiceProcess> {
  slot = await takeSlot({ ownStack: own.stack });
  fleet = createFleet(slot);
  works = [
    openIntentWork(slot),
    await openMobileWork(slot, own.dir),
    await openSymbolWork(slot, own.dir),
    await openCallbackWork(slot),
    await openSubscriptionWork(slot),
  ];
  const env = {
    ...Object.assign({}, ...works.map((work) => work.env)),
    NOTIFICATION_ROLES: works.map(({ role }) => role).join(),
  } as Record<string, string>;
  const service = await fleet.start(env);
  await Promise.all(works.map((work) => work.begin()));
  return service;
}

async function finishWork(): Promise<void> {
  for (const work of works) await work.stopped?.();
  await Promise.all(works.map((work) => work.heal()));
  await Promise.all(works.map((work) => work.finish()));
}

function pidOf(server: string): number {
  const file = readFileSync(path.join(own.dir, 'servers', `${server}.pid.json`), 'utf8');
  return (JSON.parse(file) as { server: { pid: number } }).server.pid;
}

const SHIFTS: [string, number][] = [
  ['a day ahead', DAY],
  ['a day behind', -DAY],
];

test.each(SHIFTS)(
  'I21 M8 S3 C5 security-13 all kinds of work come to the same end when the clock of their process is moved %s',
  async (_, seconds) => {
    const { pid } = await beginWork();
    await moveClock(pid, seconds);
    await finishWork();
  },
  300_000,
);

test.each(['redis', 'postgres'].flatMap((server) => SHIFTS.map((shift) => [server, ...shift] as const)))(
  'I21 M8 S3 C5 security-13 all kinds of work come to the same end when the clock of %s is moved %s',
  async (server, _, seconds) => {
    await beginWork();
    await moveClock(pidOf(server), seconds);
    await finishWork();
  },
  300_000,
);

/**
 * Only ahead: the timers of a server whose clock is put back wait until it has come to them again, whatever its clients do.
 */
test('I21 M8 S3 C5 security-13 all kinds of work come to the same end with a Temporal whose clock is a day ahead', async () => {
  await moveClock(pidOf('temporal'), DAY);
  await beginWork();
  await finishWork();
}, 300_000);

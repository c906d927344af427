/**
 * All kinds of work, under way while the clock of one process or server is moved by a day: what becomes of it is the same,
 * only when differs.
 */
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Stack } from '../../dev/servers/stack.ts';
import { startStack } from '../../dev/servers/stack.ts';
import { SEARCH_ATTRIBUTE_NAMES, loadConfig } from '../../config/load.ts';
import { openCallbackWork } from '../account-callback/open-work.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { openIntentWork } from '../intent/open-work.ts';
import { openMobileWork } from '../mobile-push/open-work.ts';
import { moveClock } from '../moved-clock.ts';
import type { OpenWork } from '../open-work.ts';
import type { ServiceProcess } from '../service-process.ts';
import { createFleet } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { openSubscriptionWork } from '../subscription/open-work.ts';
import { openSymbolWork } from '../symbol-config/open-work.ts';

const DAY = 86_400;

let dir: string;
let stack: Stack;
let slot: Slot;
let fleet: ReturnType<typeof createFleet>;
let works: OpenWork[] = [];

/** Servers of its own for each: nobody else is to have a wrong clock, and a server's may not be put right again. */
beforeEach(async () => {
  dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-clocks-'));
  // As root, PostgreSQL runs as a user of its own, who must get in.
  chmodSync(dir, 0o755);
  stack = await startStack({
    dataDir: path.join(dir, 'servers'),
    durable: false,
    report: () => undefined,
    postgres: { port: 0 },
    redis: { port: 0 },
    temporal: {
      port: 0,
      cliPath: loadConfig().values.TEMPORAL_CLI_PATH,
      namespaces: [namespaceOf(1)],
      searchAttributes: SEARCH_ATTRIBUTE_NAMES,
    },
  });
}, 120_000);
afterEach(async () => {
  await fleet?.killAll();
  for (const work of works) await work.release();
  await slot?.release();
  await stack.stop();
  rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}, 120_000);

async function beginWork(): Promise<ServiceProcess> {
  slot = await takeSlot(stack as Required<Stack>);
  fleet = createFleet(slot);
  // The slot is everybody's, and released last.
  const lent: Slot = { ...slot, release: async () => undefined };
  works = [
    openIntentWork(lent),
    await openMobileWork(lent, dir),
    await openSymbolWork(lent, dir),
    await openCallbackWork(lent),
    await openSubscriptionWork(lent),
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
  const file = readFileSync(path.join(dir, 'servers', `${server}.pid.json`), 'utf8');
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

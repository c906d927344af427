/**
 * A process or a server whose clock is wrong: what intents wait for is a difference that one clock has computed. Fault runs
 * have processes of all kinds of work with such clocks, see faults/plan.ts.
 */
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { loadConfig } from '../../config/load.ts';
import type { Stack } from '../../dev/servers/stack.ts';
import { startStack } from '../../dev/servers/stack.ts';
import { clockAhead } from '../../faults/skewed-clock.ts';
import { SEARCH_ATTRIBUTES } from '../../workflows/search-attributes.ts';
import { eventually, slotOfEachTest, takeSlot } from '../harness.ts';
import { moveClock } from '../moved-clock.ts';
import { ofEachTest } from '../of-tests.ts';
import { MAIL, append, createFleet, delivered, fleetOfEachTest } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { publishTurn, turn } from './entries.ts';
import { EMAIL, routeIn, untilStatuses } from './rows.ts';

const DAY_MS = 86_400_000;
const DAY_S = 86_400;

describe('a process', () => {
  const slot = slotOfEachTest();
  const fleet = fleetOfEachTest(() => slot);

  test.each([
    ['ahead', DAY_MS],
    ['behind', -DAY_MS],
  ])(
    'I21 I78 intent-D9 security-13 a process whose clock is a day %s skips only what is late, and keeps to the ladder',
    async (_, shiftMs) => {
      await fleet.start({
        NODE_OPTIONS: clockAhead(shiftMs),
        NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '4',
        NOTIFICATION_ROUTE_BACKOFF_MIN: '500ms',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
      });
      const expiring = (key: string, inMs: number) =>
        turn({ idempotency_key: key, expires_at_ms: String(Date.now() + inMs) });
      const [inTime, late] = await append(slot.redis, [
        expiring('in time', 3_600_000),
        expiring('late', -3_600_000),
      ]);
      await untilStatuses(slot, inTime!, ...Array<string>(4).fill('published'));
      await untilStatuses(slot, late!, ...Array<string>(4).fill('expired'));

      await slot.redis.set(MAIL, 'not a stream');
      const id = await publishTurn(slot.redis, 'key');
      const { dead_lettered_at: diedAt, created_at: createdAt } = await routeIn(
        slot,
        id,
        EMAIL,
        'dead_letter',
      );
      // After 0.5 s, 1 s and 2 s.
      expect(diedAt!.getTime() - createdAt.getTime()).toBeGreaterThan(3_400);
    },
    180_000,
  );
});

/** Servers of one test: others must not have a wrong clock, and a server's may not be put right again. */
async function startServers() {
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-clocks-'));
  // As root, PostgreSQL runs as a separate user, who must get in.
  chmodSync(dir, 0o755);
  const dataDir = path.join(dir, 'servers');
  const stack = await startStack({
    ...{ dataDir, report: () => undefined, postgres: { port: 0 }, redis: { port: 0 } },
    temporal: {
      port: 0,
      program: loadConfig().values.TEMPORAL_CLI_PATH,
      namespaces: [namespaceOf(1)],
      searchAttributes: SEARCH_ATTRIBUTES,
    },
  });
  return {
    stack: stack as Required<Stack>,
    pidOf(server: 'redis' | 'postgres' | 'temporal'): number {
      const file = readFileSync(path.join(dataDir, `${server}.pid.json`), 'utf8');
      return (JSON.parse(file) as { server: { pid: number } }).server.pid;
    },
    async stop() {
      await stack.stop();
      rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}

describe('a server', () => {
  const own = ofEachTest(startServers, (servers) => servers.stop());
  const slot = ofEachTest(
    () => takeSlot({ ownStack: own.stack }),
    (taken) => taken.release(),
  );
  const fleet = ofEachTest(
    () => createFleet(slot),
    (started) => started.killAll(),
  );

  test.each([
    ['redis', 'a day ahead', DAY_S],
    ['redis', 'a day behind', -DAY_S],
    ['postgres', 'a day ahead', DAY_S],
    ['postgres', 'a day behind', -DAY_S],
    // Only ahead: timers of a server whose clock is put back wait until it has come to them again, whatever its clients do.
    ['temporal', 'a day ahead', DAY_S],
  ] as const)(
    'I21 security-13 a route goes on with its attempts when the clock of %s is %s',
    async (server, _, seconds) => {
      if (server === 'temporal') await moveClock(own.pidOf(server), seconds);
      await fleet.start({
        NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_ROUTE_BACKOFF_MIN: '500ms',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
      });
      await slot.redis.set(MAIL, 'not a stream');
      const id = await publishTurn(slot.redis, 'key');
      const attemptsAfter = (attempts: number) =>
        eventually('another attempt', async () => {
          const { rows } = await slot.db.query<{ count: number }>(
            "SELECT attempt_count AS count FROM notification.routes WHERE status = 'failed'",
          );
          return rows[0] !== undefined && rows[0].count > attempts && rows[0].count;
        });
      const before = await attemptsAfter(0);
      if (server !== 'temporal') await moveClock(own.pidOf(server), seconds);
      await attemptsAfter(before + 1);
      await slot.redis.del(MAIL);
      await delivered(slot, id);
    },
    300_000,
  );
});

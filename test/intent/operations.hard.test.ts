/**
 * Operations of many items while the command line, the service and Temporal are killed one after the other: each item is
 * dealt with once. `TEST_OPERATION_ROUTES` says how many routes, and the run says how fast they were; see CONTRIBUTING.md.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { CHUNK } from '../../activities/operations.ts';
import { sampleIntentOf } from '../../client/intent/sample-intents.ts';
import { publishIntent } from '../../client/notificationintent.ts';
import type { OperationView } from '../../client/operations.ts';
import type { Operator } from '../../client/operator.ts';
import { LOOPBACK } from '../../dev/servers/ports.ts';
import type { Servers } from '../../faults/servers.ts';
import { startServers } from '../../faults/servers.ts';
import { cliFor, spawnCli } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { asUser } from '../redis-users.ts';
import type { ServiceProcess } from '../service-process.ts';
import { MAIL, createFleet } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const ROUTES = Number(process.env['TEST_OPERATION_ROUTES'] ?? 300);
const IS_LARGE = ROUTES > 10_000;
/** Of one notification. */
const RECIPIENTS = IS_LARGE ? 100 : 10;
const NOTIFICATIONS = Math.ceil(ROUTES / RECIPIENTS);
const KILLS = IS_LARGE ? 10 : 3;
/** Routes a second; so low by default that the operation is under way when a process is killed. */
const RATE = IS_LARGE ? 1_000 : 40;
const LIMIT_MS = 60_000 + ROUTES * 20;
/** Twice as long as an operation takes for the items that it has under way together. */
const PAUSE_LIMIT_MS = 2_000;

let servers: Servers;
let slot: Slot;
let operator: Operator;
let fleet: ReturnType<typeof createFleet>;
let service: ServiceProcess;
let bench: ReturnType<typeof cliFor>;
beforeAll(async () => {
  servers = await startServers({ keep: false, report: () => undefined, namespaces: [namespaceOf(1)] });
  slot = await takeSlot({
    ownStack: {
      postgresDsn: servers.dsnAt(servers.postgres.port),
      redisAddr: `${LOOPBACK}:${servers.redis.port}`,
      temporalAddress: `${LOOPBACK}:${servers.temporal.port}`,
    },
  });
  operator = operatorOf(slot);
  bench = cliFor(slot);
  fleet = createFleet(slot);
  await startService();
}, 180_000);
afterAll(async () => {
  await fleet?.killAll();
  bench?.dispose();
  await slot?.release();
  await servers?.stop();
}, 120_000);

const startService = async () => {
  service = await fleet.start({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '2',
  });
};

const publish = (key: string, recipients: number) =>
  publishIntent(slot.redis, {
    ...sampleIntentOf(GALAXY, 'lobby.invite.expired', 'user', key),
    recipientUserIds: Array.from({ length: recipients }, (_, index) => `user-${index + 1}`),
  });

/** How many e-mail routes there are by status, in the order of the alphabet. */
async function statuses(): Promise<Record<string, number>> {
  const { rows } = await slot.db.query<{ status: string; count: number }>(
    "SELECT status, count(*)::int AS count FROM notification.routes WHERE channel = 'email' GROUP BY 1 ORDER BY 1",
  );
  return Object.fromEntries(rows.map(({ status, count }) => [status, count]));
}

const untilStatuses = (what: string, expected: Record<string, number>) =>
  eventually(
    what,
    async () => {
      const found = await statuses();
      if (JSON.stringify(found) === JSON.stringify(expected)) return true;
      throw new Error(`there are ${JSON.stringify(found)}`);
    },
    LIMIT_MS,
  );

/** A process of the command line that is there to be killed. @returns the id of the operation that it begins. */
function begin(args: string[]): { process: ChildProcess; operationId: Promise<string> } {
  const child = spawnCli(args, { ...bench.env, ...asUser('operator') });
  const operationId = new Promise<string>((resolve, reject) => {
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      const [, id] = /operation (\S+) goes on by itself/.exec(said) ?? [];
      if (id !== undefined) resolve(id);
    });
    child.once('close', () => reject(new Error(`the command has begun nothing: ${said}`)));
  });
  return { process: child, operationId };
}

const ask = (operationId: string): Promise<OperationView | undefined> =>
  operator.operations.show(operationId).catch(() => undefined);

/**
 * Begins an operation by the command line, pauses and resumes it, and kills until it is over.
 *
 * @param rate items a second.
 */
async function runWhileKilling(args: string[], total: number, rate: number): Promise<void> {
  const command = begin([...args, '--yes', '--rate', String(rate)]);
  const operationId = await command.operationId;
  const { createdAt } = (await ask(operationId))!;
  await eventually('a beginning', async () => ((await ask(operationId))?.done ?? 0) > 0, LIMIT_MS);
  const pausedAt = performance.now();
  expect(await operator.operations.pause(operationId)).toMatchObject({ status: 'paused' });
  await sleep(Math.max(0, PAUSE_LIMIT_MS - (performance.now() - pausedAt)));
  const { done } = (await ask(operationId))!;
  expect(done).toBeLessThan(total);
  // Those that were under way end in their own time.
  const stood = await eventually('a standstill', async () => {
    const before = (await ask(operationId))!;
    await sleep(PAUSE_LIMIT_MS);
    const after = (await ask(operationId))!;
    expect(after.status).toBe('paused');
    return after.done === before.done && after.done;
  });
  expect(stood - done).toBeLessThanOrEqual(Math.min(CHUNK, rate));
  await operator.operations.resume(operationId);
  const pausedMs = performance.now() - pausedAt;

  let kills = 0;
  let outagesMs = 0;
  for (; kills < KILLS; kills += 1) {
    const before = (await ask(operationId))!;
    if (before.endedAt !== undefined) break;
    const due = before.done + (total - before.done) / (KILLS + 1 - kills);
    await eventually('more to be done', async () => ((await ask(operationId))?.done ?? 0) >= due, LIMIT_MS);
    const killedAt = performance.now();
    const { done: doneBefore } = (await ask(operationId))!;
    if (kills % 3 === 0) {
      command.process.kill('SIGKILL');
      await service.end('SIGKILL');
      await startService();
    } else if (kills % 3 === 1) {
      await servers.temporal.now().kill();
      await servers.temporal.now().start();
    } else {
      await Promise.all([service.end('SIGKILL'), servers.temporal.now().kill()]);
      await servers.temporal.now().start();
      await startService();
    }
    await eventually(
      'it to go on',
      async () => ((await ask(operationId))?.done ?? 0) > Math.min(doneBefore, total - 1),
      LIMIT_MS,
    );
    outagesMs += performance.now() - killedAt;
  }
  // A small one may be over before the last of them.
  expect(kills).toBeGreaterThanOrEqual(ROUTES >= 100_000 ? KILLS : 1);
  const ended = await eventually(
    'its end',
    async () => {
      const view = await ask(operationId);
      return view?.endedAt !== undefined && view;
    },
    LIMIT_MS,
  );
  expect(ended).toMatchObject({ status: 'done', total, done: total, ordered: total });
  const tookMs = ended.endedAt!.getTime() - createdAt.getTime() - pausedMs;
  const rateOf = (ms: number) =>
    `${Math.round((ROUTES * 1_000) / ms)} routes/s in ${(ms / 1_000).toFixed(1)} s`;
  console.info(
    `${args[0]}: ${total} items, ${ROUTES} routes, ${kills} kills, ${rateOf(tookMs)}; ` +
      `without the outages ${rateOf(tookMs - outagesMs)}; load ${loadavg()[0]!.toFixed(1)}`,
  );
  if (command.process.exitCode === null && command.process.signalCode === null) {
    command.process.kill('SIGKILL');
    await once(command.process, 'close');
  }
}

/** Dead routes that Temporal knows nothing of any more, as of long ago: copies of one that has died. */
async function fillWithDead(): Promise<void> {
  await slot.redis.set(MAIL, 'not a stream');
  const id = await publish('dead', RECIPIENTS);
  await untilStatuses('dead routes', { dead_letter: RECIPIENTS });
  await slot.redis.del(MAIL);
  await copy(id, { count: NOTIFICATIONS - 1, suffix: '-7', key: 'dead-' });
}

/** Copies of a notification and its routes, under the ids `1<suffix>` and so on. */
async function copy(
  id: string,
  { count, suffix, key }: { count: number; suffix: string; key: string },
): Promise<void> {
  const copies = (table: string, fields: string) => `
    INSERT INTO notification.${table}
    SELECT (jsonb_populate_record(original, jsonb_build_object('notification_id', n || $2, ${fields}))).*
      FROM notification.${table} AS original, generate_series(1, $3::int) AS n
     WHERE original.notification_id = $1`;
  await slot.db.query(copies('records', `'idempotency_key', '${key}' || n`), [id, suffix, count]);
  await slot.db.query(copies('routes', `'route_id', original.route_id`), [id, suffix, count]);
}

test(
  'U2 I25 routes are replayed once each while the command line, the service and Temporal are killed',
  async () => {
    await fillWithDead();
    await runWhileKilling(['replay', '--channel', 'email'], NOTIFICATIONS * RECIPIENTS, RATE);
    await untilStatuses('published routes', { published: NOTIFICATIONS * RECIPIENTS });
    const { rows } = await slot.db.query<{ replays: number; routes: number }>(
      `SELECT replays, count(*)::int AS routes
         FROM (SELECT count(*)::int AS replays FROM notification.replays GROUP BY notification_id, route_id) AS of_route
        GROUP BY replays`,
    );
    expect(rows).toEqual([{ replays: 1, routes: NOTIFICATIONS * RECIPIENTS }]);
    const deliveries = await slot.redis.xrange(MAIL, '-', '+');
    const ids = deliveries.map(([, fields]) => fields[fields.indexOf('delivery_id') + 1]);
    expect(new Set(ids).size).toBe(NOTIFICATIONS * RECIPIENTS);
    expect(ids).toHaveLength(NOTIFICATIONS * RECIPIENTS);
  },
  10 * LIMIT_MS,
);

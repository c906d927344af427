/**
 * The acceptance of the intent pipeline, from outside: processes that end in the middle of their work, PostgreSQL that goes away,
 * and a notification with more routes than one parent should have. In every mode only what is in trouble has workflows.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_CHILDREN_PER_PARENT, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { dispatch, eventually, slotOfEachTest } from '../harness.ts';
import type { ServiceProcess } from '../service-process.ts';
import {
  GATEWAY,
  OFFSET_KEY,
  allPublished,
  append,
  deliveriesTo,
  nothingLeftRunning,
  outboundIds,
  fleetOfEachTest,
} from '../service-process.ts';
import { publishTurn, turn } from './entries.ts';
import { countOf, resultOf, usersUpTo } from './rows.ts';

/** Everything must arrive in the end; a machine that is busy with other things may take its time. */
const LIMIT_MS = 240_000;
jest.setTimeout(2 * LIMIT_MS);
/** Longer than several of the gaps, and than what a connection would sit out by itself; half a minute once is enough. */
const OUTAGE_MS = dispatch() === 'child' ? 30_000 : 12_000;

const slot = slotOfEachTest();
const fleet = fleetOfEachTest(() => slot);

const publish = (prefix: string, count: number) =>
  append(
    slot.redis,
    Array.from({ length: count }, (_, index) =>
      turn({ idempotency_key: `${prefix}-${index}`, recipient_user_ids_json: '["user-1"]' }),
    ),
  );

/** How many notifications have an entry in either outbound stream. */
const reached = async () => new Set((await outboundIds(slot.redis)).map((id) => id.split('/')[0])).size;
const reaches = (count: number) =>
  eventually(`${count} push events`, async () => (await slot.redis.xlen(GATEWAY)) >= count, LIMIT_MS);

/** Of each route one entry, of each intent a record, and no attempt that was counted twice or for nothing. */
async function expectEachOnce(ids: string[]): Promise<void> {
  await allPublished(slot, 2 * ids.length, LIMIT_MS);
  await nothingLeftRunning(slot, LIMIT_MS);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
  expect(await countOf(slot, 'records')).toBe(ids.length);
  expect(await countOf(slot, 'records', 'notification_id = ANY ($1)', [ids])).toBe(ids.length);
  const others = await slot.db.query(
    `SELECT route_id FROM notification.routes WHERE status <> 'published' OR last_error_at IS NOT NULL
      UNION ALL SELECT route_id FROM notification.dead_letters
      UNION ALL SELECT stream_entry_id FROM notification.malformed_intents`,
  );
  expect(others.rows).toEqual([]);
  expect(await slot.redis.get(OFFSET_KEY)).toBe(ids.at(-1));
}

const isReader = ({ lines }: ServiceProcess) => lines.some(({ msg }) => msg === 'stream reader started');

test('I35 I36 one of two processes is killed, the other one stopped after a third came, and each intent arrives once', async () => {
  const pair = await Promise.all([fleet.start(), fleet.start()]);
  const ids = await publish('first', 100);
  await reaches(20);
  // The reader is the one whose death hurts more.
  const reader = pair.find(isReader)!;
  const other = pair.find((service) => service !== reader)!;
  await reader.end('SIGKILL');
  expect(await reached()).toBeLessThan(100);

  await fleet.start();
  ids.push(...(await publish('second', 100)));
  await reaches(120);
  expect(await other.end('SIGTERM')).toBe(0);
  expect(other.lines.at(-1)?.msg).toBe('service stopped');
  await expectEachOnce(ids);
});

test(`I24 ${OUTAGE_MS / 1_000} seconds without PostgreSQL in the middle of 100 intents cost no attempt and no entry`, async () => {
  const service = await fleet.start();
  const ids = await publish('before', 100);
  await reaches(20);
  const outage = await slot.cutOffDatabase();
  ids.push(...(await publish('during', 10)));
  await sleep(OUTAGE_MS);
  expect(await reached()).toBeLessThan(ids.length);
  expect(service.isRunning()).toBe(true);
  await outage.restore();
  await expectEachOnce(ids);
});

test('I34 I35 an uncaught error ends the process immediately, and its log says which', async () => {
  const trap = "process.on('SIGUSR2',()=>{throw%20Error('overlooked')})";
  const service = await fleet.start({ NODE_OPTIONS: `--import=data:text/javascript,${trap}` });
  process.kill(service.pid, 'SIGUSR2');
  await eventually('the process to end', async () => !service.isRunning());
  expect(await service.end('SIGKILL')).toBe(1);
  // The process is gone before all that it said is read.
  const last = () => service.lines.find(({ level }) => level === 'fatal');
  // The SDK may have kept lines of before, which come after it.
  await eventually('its last line', async () => last() !== undefined);
  expect(last()).toMatchObject({ reason: 'overlooked', origin: 'uncaughtException' });
});

test('I41 I22 routes of a large notification that are in trouble get workflows, the others none, and its own history stays short', async () => {
  const users = usersUpTo(150);
  expect(2 * users.length).toBeGreaterThan(MAX_CHILDREN_PER_PARENT);
  await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '3s',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '6s',
    // None is given up before a busy machine has made workflows for all of them.
    NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '20',
  });
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'large', users);
  const workflowsOfRoutes = async () => {
    const query = `NotificationId = '${id}' AND WorkflowType = 'notificationRoute'`;
    return (await slot.client.workflow.count(query)).count;
  };
  await eventually('all pushes to have workflows', async () => (await workflowsOfRoutes()) === users.length);
  await slot.redis.del(GATEWAY);
  const published = 2 * users.length;
  expect(await resultOf(slot, id)).toEqual({ outcome: 'accepted', published, skipped: 0, deadLettered: 0 });
  const wanted = users.flatMap((user) => deliveriesTo(user, [id]));
  expect(await outboundIds(slot.redis)).toEqual(wanted.sort());
  expect(await workflowsOfRoutes()).toBe(users.length);
  // What was published at first was not tried again.
  expect(await countOf(slot, 'routes', "channel = 'email' AND attempt_count = 1")).toBe(users.length);
  const { events } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).fetchHistory();
  expect(events!.length).toBeLessThan(40);
});

/** The acceptance of the intent pipeline, from outside: processes that end in the middle of their work, and PostgreSQL that goes away. */
import { setTimeout as sleep } from 'node:timers/promises';
import { turn } from './entries.ts';
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
  const { rows } = await slot.db.query<{ notification_id: string }>(
    'SELECT notification_id FROM notification.records',
  );
  expect(rows.map(({ notification_id }) => notification_id).sort()).toEqual([...ids].sort());
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

/**
 * The acceptance of the intent pipeline, from outside: service processes that are killed in the middle of their work,
 * and a stream half of which is nonsense.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { EntryFields, MalformedCode } from '../../api/intent/entry.ts';
import type { Vectors } from '../../dev/contracts/vectors.ts';
import { entryOfVector } from '../../dev/contracts/vectors.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import { turn, turnPayload } from './entries.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
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
const TEST_LIMIT_MS = 2 * LIMIT_MS;

/** Good entries and as many bad ones; `FAULT_ENTRIES=1000 npm test -- -t 'I6 good'` for a long run by hand. */
const ENTRIES = Number(process.env['FAULT_ENTRIES'] ?? 100);

const slot = slotOfEachTest();
const fleet = fleetOfEachTest(() => slot);

const goodEntry = (key: string): EntryFields =>
  turn({ idempotency_key: key, recipient_user_ids_json: '["user-1"]' });
const publish = (prefix: string, count: number) =>
  append(
    slot.redis,
    Array.from({ length: count }, (_, index) => goodEntry(`${prefix}-${index}`)),
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

test(
  'I35 I36 one of two processes is killed, the other one stopped after a third came, and each intent arrives once',
  async () => {
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
  },
  TEST_LIMIT_MS,
);

type Bad = [code: MalformedCode, entry: (key: string) => EntryFields];

const conflictingKey = 'taken';
const withTurn = (changes: Parameters<typeof turn>[0]) => (key: string) =>
  turn({ idempotency_key: key, recipient_user_ids_json: '["user-1"]', ...changes });

const file = path.join(import.meta.dirname, '../../api/intent/vectors.json');
const { entries } = JSON.parse(readFileSync(file, 'utf8')) as Vectors;

/** What only acceptance finds out, and every way to be refused by the contract. */
const BAD: Bad[] = [
  ['recipient_not_found', withTurn({ recipient_user_ids_json: '["nobody"]' })],
  ['recipient_not_found', withTurn({ recipient_user_ids_json: '["user-1","user-2","__proto__"]' })],
  ['recipient_not_found', withTurn({ recipient_user_ids_json: '["../user-1","a/b c"]' })],
  [
    'idempotency_conflict',
    withTurn({ idempotency_key: conflictingKey, payload_json: turnPayload(',"x":1') }),
  ],
  [
    'idempotency_conflict',
    withTurn({ idempotency_key: conflictingKey, recipient_user_ids_json: '["user-2"]' }),
  ],
  ...entries.flatMap((vector): Bad[] => {
    const fields = entryOfVector(vector);
    // Redis takes no entry without a field.
    return vector.refused && fields.length > 0 ? [[vector.refused.code, () => fields]] : [];
  }),
];
/** Entries of all kinds come soon; it has no divisor in common with their number. */
const STEP = 101;

test(
  `I6 good intents among as many bad ones arrive once, and each bad one is recorded and logged once`,
  async () => {
    const service = await fleet.start();
    // Accepted before its key is used for something else, so that it is clear who conflicts with whom.
    const good = await append(slot.redis, [goodEntry(conflictingKey)]);
    await allPublished(slot, 2, LIMIT_MS);

    const begun = Date.now();
    const expected = new Map<string, MalformedCode>();
    let lastId = '';
    for (let index = 0; index < ENTRIES; index += 1) {
      const [code, entry] = BAD[(index * STEP) % BAD.length]!;
      const [goodId, badId] = await append(slot.redis, [goodEntry(`good-${index}`), entry(`bad-${index}`)]);
      good.push(goodId!);
      expected.set(badId!, code);
      lastId = badId!;
    }
    await eventually(
      'the offset to reach the end',
      async () => (await slot.redis.get(OFFSET_KEY)) === lastId,
      LIMIT_MS,
    );
    await allPublished(slot, 2 * good.length, LIMIT_MS);
    await nothingLeftRunning(slot, LIMIT_MS);
    process.stderr.write(`${ENTRIES} good and ${ENTRIES} bad entries took ${Date.now() - begun} ms\n`);

    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', good));
    const records = await slot.db.query<{ notification_id: string }>(
      'SELECT notification_id FROM notification.records',
    );
    expect(records.rows.map(({ notification_id }) => notification_id).sort()).toEqual([...good].sort());
    const malformed = await slot.db.query<{ stream_entry_id: string; failure_code: MalformedCode }>(
      'SELECT stream_entry_id, failure_code FROM notification.malformed_intents',
    );
    const found = new Map(malformed.rows.map((row) => [row.stream_entry_id, row.failure_code]));
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(expected));

    const logged = service.lines
      .filter(({ msg }) => ['malformed intent recorded', 'intent rejected'].includes(msg))
      .map((line) => String(line['notification_id']));
    expect(logged.sort()).toEqual([...expected.keys()].sort());
    // The reader has not stumbled over any of them.
    const reader = await slot.client.workflow.getHandle(bridgeWorkflowId('notification:intents')).describe();
    expect(reader.raw.pendingActivities?.[0]?.attempt).toBe(1);
    expect(service.lines.filter(({ msg }) => msg === 'stream reader started')).toHaveLength(1);
    expect(service.lines.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
  },
  TEST_LIMIT_MS,
);

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

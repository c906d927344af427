/** A store that was put back to an earlier state while the others went on: what it has forgotten is done again. */
import { envelopeOf } from '../../api/intent/entry.ts';
import { newGameTurnReady } from '../../client/notificationintent.ts';
import type { StreamFindingKind } from '../../workflows/intent/reader-contract.ts';
import { REPLAY_SIGNAL, notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { keepRows } from '../put-back.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { writeRows } from '../../dev/intent-rows.ts';
import { accepted, publishTurn, turn } from './entries.ts';

const INTENTS = 'notification:intents';
const keyOf = (kind: 'offsets' | 'beats') =>
  `notification:stream_${kind}${kind === 'beats' ? ':intent' : ''}:${Buffer.from(INTENTS).toString('base64url')}`;

let slot: Slot;
let other: Slot | undefined;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(async () => {
  await slot.release();
  await other?.release();
  other = undefined;
});
/** A slot whose Temporal knows nothing of the first one's work. */
const takeEmpty = async (): Promise<Slot> => (other = await takeSlot());

const QUICK = {
  NOTIFICATION_RECONCILIATION_INTERVAL: '1s',
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: '200ms',
};

/** The reconciliation clears a row that was written after its intent was decided once it is this old. */
const UNTRIED_MS = 120_000;

const settled = (ids: string[]) =>
  eventually(`${ids.length} notifications to be settled`, async () => {
    const { rows } = await slot.db.query<{ count: number }>(
      "SELECT count(*)::int AS count FROM notification.routes WHERE notification_id = ANY ($1) AND status = 'published'",
      [ids],
    );
    return rows[0]!.count === 2 * ids.length;
  });
const ended = (ids: string[]) =>
  eventually('their workflows to end', async () => {
    const states = await Promise.all(
      ids.map((id) => slot.client.workflow.getHandle(notificationWorkflowId(id)).describe()),
    );
    return states.every(({ status }) => status.name === 'COMPLETED');
  });
/** Until a look has written down where the reader is. */
const lookedAt = (id: string) =>
  eventually(`a look that has seen ${id}`, async () => {
    const { rows } = await slot.db.query('SELECT FROM notification.inbound_streams WHERE passed_id = $1', [
      id,
    ]);
    return rows.length === 1;
  });
const found = (kind: StreamFindingKind) =>
  eventually(`the finding ${kind}`, async () =>
    slot.logs.find(({ msg, kind: of }) => msg === 'stream finding' && of === kind),
  );
const readsAgain = () => slot.logs.filter(({ msg }) => msg === 'stream is read again');
/** As many deliveries as their ids say, whatever is repeated. */
const outboundSet = async () => [...new Set(await outboundIds(slot.redis))];

test('I52 security-5 intents that PostgreSQL has forgotten are accepted again, and nothing is handed off twice', async () => {
  await slot.startService(QUICK);
  const before = [await publishTurn(slot.redis, 'a')];
  await settled(before);
  await lookedAt(before[0]!);
  const { putBack } = await keepRows(slot.db);
  const after = [await publishTurn(slot.redis, 'b'), await publishTurn(slot.redis, 'c')];
  await settled(after);
  await ended(after);
  await lookedAt(after[1]!);
  await putBack();

  await settled([...before, ...after]);
  await found('postgres_regressed');
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [...before, ...after]));
  // It knows their keys again.
  const other = await publishTurn(slot.redis, 'c');
  await eventually('another intent with a key of theirs to be refused', async () => {
    const { rows } = await slot.db.query<{ with: string }>(
      'SELECT conflicts_with AS with FROM notification.malformed_intents WHERE stream_entry_id = $1',
      [other],
    );
    return rows[0]?.with === after[1];
  });
});

test(
  'I52 security-5 of two intents with one key that PostgreSQL has forgotten the same one wins again',
  async () => {
    await slot.startService(QUICK);
    const before = await publishTurn(slot.redis, 'before');
    await settled([before]);
    await lookedAt(before);
    const { putBack } = await keepRows(slot.db);
    const keys = Array.from({ length: 20 }, (_, index) => `key-${index}`);
    const winners: string[] = [];
    const losers: string[] = [];
    for (const key of keys) {
      winners.push(await publishTurn(slot.redis, key));
      losers.push(await publishTurn(slot.redis, key, ['user-2']));
    }
    const refused = () =>
      eventually('the others to be refused', async () => {
        const { rows } = await slot.db.query<{ id: string; by: string }>(
          'SELECT stream_entry_id AS id, conflicts_with AS by FROM notification.malformed_intents',
        );
        const by = new Map(rows.map((row) => [row.id, row.by]));
        return losers.every((id, index) => by.get(id) === winners[index]);
      });
    await settled(winners);
    await refused();
    await ended([...winners, ...losers]);
    await eventually('a look that has passed them', async () => {
      const { rows } = await slot.db.query('SELECT FROM notification.inbound_streams WHERE passed_id = $1', [
        losers.at(-1),
      ]);
      return rows.length === 1;
    });
    await putBack();

    await settled([before, ...winners]);
    await refused();
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [before, ...winners]));
    const noneWaits = async () =>
      (await slot.db.query("SELECT FROM notification.intents WHERE status = 'open'")).rowCount === 0;
    await eventually('no intent to be open', noneWaits, UNTRIED_MS + 60_000);
  },
  UNTRIED_MS + 240_000,
);

test('I52 security-5 an intent whose workflow goes on without its record is begun again when that ends', async () => {
  await slot.startService({
    ...QUICK,
    NOTIFICATION_ROUTE_BACKOFF_MIN: '1h',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '2h',
  });
  const first = await publishTurn(slot.redis, 'a');
  await settled([first]);
  await lookedAt(first);
  const { putBack } = await keepRows(slot.db);
  await slot.redis.rename('gateway:client-events', 'kept');
  await slot.redis.set('gateway:client-events', 'not a stream');
  const id = await publishTurn(slot.redis, 'b');
  await eventually('its e-mail to be sent, and its push to wait for another attempt', async () => {
    const { rows } = await slot.db.query(
      `SELECT FROM notification.routes
        WHERE notification_id = $1 AND (channel, status) IN (('push', 'failed'), ('email', 'published'))`,
      [id],
    );
    return rows.length === 2;
  });
  await lookedAt(id);
  await slot.redis.rename('kept', 'gateway:client-events');
  await putBack();
  await eventually('the intent to be missed', async () => {
    const { rows } = await slot.db.query(
      "SELECT FROM notification.intents WHERE notification_id = $1 AND status = 'open'",
      [id],
    );
    return rows.length === 1;
  });
  await slot.client.workflow.getHandle(routeWorkflowId(id, 'push:user:user-1')).signal(REPLAY_SIGNAL, {});
  await eventually('its workflow to end', async () => {
    const { status } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe();
    return status.name !== 'RUNNING';
  });
  // Another one with its key comes after it, although its workflow has ended.
  const later = await publishTurn(slot.redis, 'b', ['user-2']);
  await eventually('the later one to wait', async () => {
    const { rows } = await slot.db.query(
      "SELECT FROM notification.intents WHERE notification_id = ANY ($1) AND status = 'open'",
      [[id, later]],
    );
    return rows.length === 2;
  });
  await slot.db.query(
    "UPDATE notification.intents SET updated_at = updated_at - interval '3 minutes' WHERE notification_id = $1",
    [id],
  );
  await settled([first, id]);
  await eventually('the later one to be refused', async () => {
    const { rows } = await slot.db.query<{ by: string }>(
      'SELECT conflicts_with AS by FROM notification.malformed_intents WHERE stream_entry_id = $1',
      [later],
    );
    return rows[0]?.by === id;
  });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [first, id]));
});

test('I52 security-4 intents that were dispatched and not decided when Temporal lost everything are dispatched again', async () => {
  const empty = await takeEmpty();
  const before = await slot.startService(QUICK);
  const first = await publishTurn(slot.redis, 'a');
  await settled([first]);
  await before.stop();
  const taken = { ...accepted(turn({ idempotency_key: 'b', recipient_user_ids_json: '["user-1"]' })) };
  await writeRows(slot.db, [taken]);
  await slot.db.query(
    "UPDATE notification.intents SET updated_at = now() - interval '3 minutes' WHERE status = 'open'",
  );
  await slot.startService({ ...QUICK, TEMPORAL_NAMESPACE: namespaceOf(empty.slot) });
  await settled([first, taken.notificationId]);
  expect(await outboundSet()).toEqual(deliveriesTo('user-1', [first, taken.notificationId].sort()));
  // What is decided is not even looked at.
  await expect(empty.client.workflow.getHandle(notificationWorkflowId(first)).describe()).rejects.toThrow();
});

test('I52 intent-D14 a copy of the offset that is lost is written again, and nothing is read again', async () => {
  const before = await slot.startService(QUICK);
  const old = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  await settled(old);
  await lookedAt(old[1]!);
  await before.stop();
  // Retention has removed all that is known of the first.
  await slot.db.query('DELETE FROM notification.records WHERE notification_id = $1', [old[0]]);
  await slot.redis.del(keyOf('offsets'));
  await slot.startService(QUICK);
  // Also while nothing new comes: gauges look there, and the next reader must not find the same loss.
  await eventually(
    'the offset to be there again',
    async () => (await slot.redis.get(keyOf('offsets'))) === old[1],
  );
  const next = await publishTurn(slot.redis, 'c');
  await settled([next]);
  expect(readsAgain()).toEqual([]);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [...old, next]));
});

test('I52 intent-D2 after a loss of Redis an hour is read again, of which nothing is started that has a row', async () => {
  const ids: string[] = [];
  const before = await slot.startService(QUICK);
  for (const key of ['a', 'b', 'c']) ids.push(await publishTurn(slot.redis, key));
  await settled(ids);
  await lookedAt(ids[2]!);
  await before.stop();
  // Long delivered, and forgotten by everybody. It came before the others.
  const intent = newGameTurnReady({
    ...{ idempotencyKey: 'old', occurredAt: Date.now(), recipientUserIds: ['user-1'] },
    payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
  });
  const entries = await slot.redis.xrange(INTENTS, '-', '+');
  await slot.redis.del(INTENTS);
  const old = `${Date.now() - 2 * 3_600_000}-0`;
  await slot.redis.xadd(INTENTS, old, ...Object.entries(envelopeOf(intent)).flat());
  for (const [id, fields] of entries.slice(0, 2)) await slot.redis.xadd(INTENTS, id, ...fields);

  await slot.startService(QUICK);
  await found('stream_regressed');
  const next = await publishTurn(slot.redis, 'd');
  await settled([next]);
  expect(await outboundSet()).toEqual(deliveriesTo('user-1', [...ids, next]));
  const { count } = await slot.client.workflow.count("WorkflowType = 'notification'");
  expect(count).toBeLessThanOrEqual(4);
});

test.each(['is known by its record', 'is known by its workflow'])(
  'I53 security-11 an entry id that comes again with other content is recorded: the first one %s',
  async (by) => {
    const empty = await takeEmpty();
    const before = await slot.startService(QUICK);
    const id = await publishTurn(slot.redis, 'a');
    await settled([id]);
    await lookedAt(id);
    await before.stop();
    await slot.redis.del(INTENTS, keyOf('offsets'));
    await slot.db.query('DELETE FROM notification.inbound_streams');
    const other = newGameTurnReady({
      ...{ idempotencyKey: 'other', occurredAt: Date.now(), recipientUserIds: ['user-2'] },
      payload: { game_id: 'g', game_name: 'G', turn_number: 2 },
    });
    await slot.redis.xadd(INTENTS, id, ...Object.entries(envelopeOf(other)).flat());
    await slot.startService({
      ...QUICK,
      // Where it is known by its record, Temporal's retention has removed the workflow.
      ...(by.endsWith('record') ? { TEMPORAL_NAMESPACE: namespaceOf(empty.slot) } : {}),
    });
    const row = await eventually('the entry to be recorded', async () => {
      const { rows } = await slot.db.query<{ code: string; key: string }>(
        `SELECT failure_code AS code, idempotency_key AS key, stream_entry_id AS id
           FROM notification.malformed_intents WHERE stream_entry_id LIKE $1`,
        [`${id}/%`],
      );
      return rows[0];
    });
    expect(row).toMatchObject({ code: 'entry_id_reused', key: 'other' });
    // The next one takes the usual way.
    const next = await publishTurn(slot.redis, 'b');
    await settled([next]);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id, next]));
  },
);

test('I52 stores that are as they were have nothing read again', async () => {
  await slot.startService(QUICK);
  const id = await publishTurn(slot.redis, 'a');
  await settled([id]);
  const beatOf = async () => Number((await slot.redis.get(keyOf('beats')))?.split(' ')[0] ?? 0);
  const first = await beatOf();
  await eventually('three more looks', async () => (await beatOf()) >= first + 3);
  expect(slot.logs.filter(({ msg }) => msg === 'stream is read again')).toEqual([]);
});

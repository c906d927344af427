/** A store that was put back to an earlier state while the others went on: what it has forgotten is done again. */
import { REPLAY_SIGNAL, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { keepRows, untilWorkflowsEnd } from '../put-back.ts';
import { GATEWAY, OFFSET_KEY, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { EMAIL, PUSH, bothPublished, intentStatusOf, routeIn } from './rows.ts';

const slot = slotOfEachTest();

const QUICK = {
  NOTIFICATION_RECONCILIATION_INTERVAL: '1s',
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: '200ms',
};

/** Until an intent is refused because another one has its key. */
const refused = (id: string, by: string) =>
  eventually(`${id} to be refused`, async () => {
    const { rows } = await slot.db.query<{ by: string }>(
      'SELECT conflicts_with AS by FROM notification.malformed_intents WHERE stream_entry_id = $1',
      [id],
    );
    return rows[0]?.by === by;
  });
/** Until a look has written down where the reader is. */
const lookedAt = (id: string) =>
  eventually(`a look that has seen ${id}`, async () => {
    const { rows } = await slot.db.query('SELECT FROM notification.inbound_streams WHERE passed_id = $1', [
      id,
    ]);
    return rows.length === 1;
  });

test('I52 security-5 intents that PostgreSQL has forgotten are accepted again, the same ones, and nothing is handed off twice', async () => {
  await slot.startService(QUICK);
  const before = [await publishTurn(slot.redis, 'a')];
  await bothPublished(slot, before);
  await lookedAt(before[0]!);
  const { putBack } = await keepRows(slot.db);
  const after = [await publishTurn(slot.redis, 'b'), await publishTurn(slot.redis, 'c')];
  const loser = await publishTurn(slot.redis, 'c', ['user-2']);
  await bothPublished(slot, after);
  await refused(loser, after[1]!);
  await untilWorkflowsEnd(slot, [...after, loser]);
  await lookedAt(loser);
  await putBack();

  await bothPublished(slot, [...before, ...after]);
  await refused(loser, after[1]!);
  await eventually('the finding', async () =>
    slot.logs.some(({ msg, kind }) => msg === 'stream finding' && kind === 'postgres_regressed'),
  );
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [...before, ...after]));
  // It knows their keys again.
  await refused(await publishTurn(slot.redis, 'b', ['user-2']), after[0]!);
});

test('I52 security-5 an intent whose workflow goes on without its record is begun again when that ends', async () => {
  await slot.startService({
    ...QUICK,
    NOTIFICATION_ROUTE_BACKOFF_MIN: '1h',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '2h',
  });
  const first = await publishTurn(slot.redis, 'a');
  await bothPublished(slot, [first]);
  await lookedAt(first);
  const { putBack } = await keepRows(slot.db);
  await slot.redis.rename(GATEWAY, 'kept');
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'b');
  await routeIn(slot, id, EMAIL, 'published');
  await routeIn(slot, id, PUSH, 'failed');
  await lookedAt(id);
  await slot.redis.rename('kept', GATEWAY);
  await putBack();
  await eventually('the intent to be missed', async () => (await intentStatusOf(slot, id)) === 'open');
  await slot.client.workflow.getHandle(routeWorkflowId(id, PUSH)).signal(REPLAY_SIGNAL, {});
  await untilWorkflowsEnd(slot, [id]);
  // Another one with its key comes after it, although its workflow has ended.
  const later = await publishTurn(slot.redis, 'b', ['user-2']);
  await eventually('the later one to wait', async () => (await intentStatusOf(slot, later)) === 'open');
  await slot.db.query(
    "UPDATE notification.intents SET updated_at = updated_at - interval '3 minutes' WHERE notification_id = $1",
    [id],
  );
  await bothPublished(slot, [first, id]);
  await refused(later, id);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [first, id]));
});

test('I52 intent-D14 a copy of the offset that is lost is written again, and nothing is read again', async () => {
  const before = await slot.startService(QUICK);
  const old = [await publishTurn(slot.redis, 'a'), await publishTurn(slot.redis, 'b')];
  await bothPublished(slot, old);
  await lookedAt(old[1]!);
  await before.stop();
  // Retention has removed all that is known of the first.
  await slot.db.query('DELETE FROM notification.records WHERE notification_id = $1', [old[0]]);
  await slot.redis.del(OFFSET_KEY);
  await slot.startService(QUICK);
  // Also while nothing new comes: gauges look there, and the next reader must not find the same loss.
  await eventually('the offset to be there again', async () => (await slot.redis.get(OFFSET_KEY)) === old[1]);
  const next = await publishTurn(slot.redis, 'c');
  await bothPublished(slot, [next]);
  expect(slot.logs.filter(({ msg }) => msg === 'stream is read again')).toEqual([]);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [...old, next]));
});

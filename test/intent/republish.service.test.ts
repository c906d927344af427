/** A refused intent is corrected and published again. */
import { NotFoundError, OperationFailedError } from '../../client/errors.ts';
import type { Operator } from '../../client/operator.ts';
import { entryFieldsOf } from '../../api/intent/entry.ts';
import type { Changes } from './entries.ts';
import { turn, turnPayload } from './entries.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';

const INTENTS = 'notification:intents';

let slot: Slot;
let operator: Operator;

beforeAll(async () => {
  slot = await takeSlot();
  operator = operatorOf(slot);
  await slot.startService();
});
afterAll(() => slot.release());

async function append(changes: Changes): Promise<string> {
  return (await slot.redis.xadd(INTENTS, '*', ...turn(changes).flat()))!;
}

const refused = (id: string) =>
  eventually(`the row of ${id}`, () => operator.malformed.show(id).catch(() => undefined));
const stageOf = (id: string, stage: string) =>
  eventually(`${id} to be ${stage}`, async () => {
    const view = await operator.notifications.show(id).catch(() => undefined);
    return view?.stage === stage && view;
  });

test('U5 an entry with a wrong field is corrected, and published', async () => {
  const id = await append({ idempotency_key: 'wrong', producer: 'lobby', of_another_release: 'x' });
  await refused(id);
  await expect(operator.malformed.republish(id)).rejects.toThrow('refuse it again: invalid_envelope');
  const correction = { set: { producer: 'game_master' } };
  const fields = await operator.malformed.correct(id, correction);
  expect(fields).toEqual(
    Object.fromEntries(
      turn({ idempotency_key: 'wrong' }).map(([name, value]) => [name.toString(), value.toString()]),
    ),
  );
  expect(entryFieldsOf(fields)).toHaveLength(7);
  const again = await operator.malformed.republish(id, correction);
  expect(await stageOf(again, 'accepted')).toMatchObject({ record: { idempotencyKey: 'wrong' } });
  // An operator who is not sure of the first call repeats it.
  const twice = await operator.malformed.republish(id, correction);
  expect(await stageOf(twice, 'ended')).toMatchObject({ duplicateOf: again });
});

test('U5 an entry whose key stands for other content gets its own key, the same each time', async () => {
  const first = await append({ idempotency_key: 'taken' });
  await stageOf(first, 'accepted');
  const other = await append({ idempotency_key: 'taken', payload_json: turnPayload(',"x":1') });
  expect(await refused(other)).toMatchObject({ code: 'idempotency_conflict' });
  const again = await operator.malformed.republish(other, { newKey: true });
  const key = `taken/republished/${other}`;
  expect(await stageOf(again, 'accepted')).toMatchObject({ record: { idempotencyKey: key } });
  const twice = await operator.malformed.republish(other, { newKey: true });
  expect(await stageOf(twice, 'ended')).toMatchObject({ duplicateOf: again });
});

test('U5 what was not kept as it came is not published, unless it is given again', async () => {
  const many = JSON.stringify(Array.from({ length: 1_000 }, (_, index) => `nobody-${index}`));
  const long = await append({ idempotency_key: 'long', producer: 'lobby', recipient_user_ids_json: many });
  const bytes = await append({ idempotency_key: Buffer.from([0x6b, 0xff]) });
  await refused(long);
  await refused(bytes);
  const set = { producer: 'game_master' };
  await expect(operator.malformed.republish(long, { set })).rejects.toThrow(
    'recipient_user_ids_json was not kept as it came: give it again with --set recipient_user_ids_json=…',
  );
  await expect(operator.malformed.correct(bytes)).rejects.toThrow('idempotency_key was not kept as it came');
  await expect(operator.malformed.correct(bytes, { newKey: true })).rejects.toThrow(OperationFailedError);
  const id = await operator.malformed.republish(long, {
    set: { ...set, recipient_user_ids_json: '["user-1"]', request_id: '' },
  });
  await stageOf(id, 'accepted');
  await expect(operator.malformed.correct(long, { set: { recipients: 'user-1' } })).rejects.toThrow(
    'recipients is no field of an intent; those are notification_type, producer',
  );
  await expect(operator.malformed.republish('1-1')).rejects.toThrow(NotFoundError);
});

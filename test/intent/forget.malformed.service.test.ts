/** Forgetting a user whose id is also an ordinary word in refused entries of strangers. */
import { operatorOf, slotOfTests } from '../harness.ts';
import { forgottenKeyOf } from '../kept.ts';

const slot = slotOfTests();

test('intent-3 refused entries of strangers keep texts that equal the id', async () => {
  const entry = (recipients: string | undefined, payload: object, key: string) => ({
    ...(recipients === undefined ? {} : { recipient_user_ids_json: recipients }),
    ...{ payload_json: JSON.stringify(payload), idempotency_key: key, trace_id: '42' },
  });
  const entries = {
    'of a stranger': entry('["other"]', { game_id: '42', user_id: 'other' }, 'game/42/turn/7'),
    'of administrators': entry(undefined, { game_id: '42' }, 'game/42/failed'),
    'of both': entry('["42","other"]', { game_id: '42', inviter_user_id: '42' }, 'game/42/invite'),
    'of the user': entry('["42"]', { game_id: '7' }, 'key'),
    escaped: entry('["a\\"b","other"]', { game_id: '7' }, 'escaped'),
    'about the user': { ...entry('["other"]', { game_id: '7' }, 'about/42'), user_id: '42' },
  };
  for (const [id, fields] of Object.entries(entries))
    await slot.db.query(
      `INSERT INTO notification.malformed_intents (stream_entry_id, idempotency_key, failure_code, failure_message,
              raw_fields, recorded_at)
       VALUES ($1, $2, 'recipient_not_found', 'unknown', $3, now())`,
      [id, fields.idempotency_key, JSON.stringify(fields)],
    );
  // The second one has a character that JSON escapes.
  for (const userId of ['42', 'a"b'])
    await operatorOf(slot).users.forget({ userId }, { requestedBy: 'nina' });

  const { rows } = await slot.db.query<{ id: string; key: string; fields: object }>(
    `SELECT stream_entry_id AS id, idempotency_key AS key, raw_fields AS fields
       FROM notification.malformed_intents`,
  );
  const kept = Object.fromEntries(rows.map(({ id, key, fields }) => [id, { key, fields }]));
  const untouched = (id: 'of a stranger' | 'of administrators') => ({
    key: entries[id].idempotency_key,
    fields: entries[id],
  });
  const [invite, about] = ['game/42/invite', 'about/42'].map(forgottenKeyOf) as [string, string];
  expect(kept).toEqual({
    'of a stranger': untouched('of a stranger'),
    'of administrators': untouched('of administrators'),
    'of both': {
      key: invite,
      fields: {
        ...entry('["forgotten","other"]', { game_id: '42', inviter_user_id: 'forgotten' }, invite),
        trace_id: 'forgotten',
      },
    },
    // A key without the id stays.
    escaped: { key: 'escaped', fields: entry('["forgotten","other"]', { game_id: '7' }, 'escaped') },
    'about the user': {
      key: about,
      fields: { ...entry('["other"]', { game_id: '7' }, about), user_id: 'forgotten', trace_id: 'forgotten' },
    },
  });
});

/** Forgetting a user whose id is also an ordinary word in refused entries of strangers. */
import { given } from '../../api/given.ts';
import { operatorOf, slotOfTests } from '../harness.ts';
import { forgottenKeyOf } from '../kept.ts';

const slot = slotOfTests();

const entry = (recipients: string | undefined, payload: object, key: string, more = {}) => ({
  ...given({ recipient_user_ids_json: recipients }),
  ...{ payload_json: JSON.stringify(payload), idempotency_key: key, trace_id: '42', ...more },
});
const FORGOTTEN = { trace_id: 'forgotten' };
const [INVITE, ABOUT] = ['game/42/invite', 'about/42'].map(forgottenKeyOf) as [string, string];
const UNTOUCHED = [
  entry('["other"]', { game_id: '42', user_id: 'other' }, 'game/42/turn/7'),
  // Of administrators.
  entry(undefined, { game_id: '42' }, 'game/42/failed'),
];
/** Each with what is left of it. */
const CHANGED = [
  [
    entry('["42","other"]', { game_id: '42', inviter_user_id: '42' }, 'game/42/invite'),
    entry('["forgotten","other"]', { game_id: '42', inviter_user_id: 'forgotten' }, INVITE, FORGOTTEN),
  ],
  // A key without the id stays.
  [
    entry('["a\\"b","other"]', { game_id: '7' }, 'escaped'),
    entry('["forgotten","other"]', { game_id: '7' }, 'escaped'),
  ],
  [
    entry('["other"]', { game_id: '7' }, 'about/42', { user_id: '42' }),
    entry('["other"]', { game_id: '7' }, ABOUT, { user_id: 'forgotten', ...FORGOTTEN }),
  ],
] as const;

test('intent-3 refused entries of strangers keep texts that equal the id', async () => {
  const ofTheUser = entry('["42"]', { game_id: '7' }, 'key');
  for (const [id, fields] of [...UNTOUCHED, ...CHANGED.map(([before]) => before), ofTheUser].entries())
    await slot.db.query(
      `INSERT INTO notification.malformed_intents (stream_entry_id, idempotency_key, failure_code, failure_message,
              raw_fields, recorded_at)
       VALUES ($1, $2, 'recipient_not_found', 'unknown', $3, now())`,
      [id, fields.idempotency_key, JSON.stringify(fields)],
    );
  // The second one has a character that JSON escapes.
  for (const userId of ['42', 'a"b'])
    await operatorOf(slot).users.forget({ userId }, { requestedBy: 'nina' });

  const { rows } = await slot.db.query(
    'SELECT idempotency_key AS key, raw_fields AS fields FROM notification.malformed_intents ORDER BY stream_entry_id',
  );
  const kept = [...UNTOUCHED, ...CHANGED.map(([, after]) => after)];
  expect(rows).toEqual(kept.map((fields) => ({ key: fields.idempotency_key, fields })));
});

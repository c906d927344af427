/** Places where account callbacks keep data of a person: the tracking, callbacks, and stream entries. */
import { DEFAULT_INPUT_STREAM, INPUT_FIELD } from '../../api/account-callback/input.ts';
import type { PartOfForgetting, Person, Place } from '../forget-places.ts';
import { rowsOf, sentence, walkOf } from '../forget-places.ts';
import { lookFor, readByAll, streamPlace } from '../forget-streams.ts';
import type { OperatorResources } from '../resources.ts';

/** Pending callbacks are not delivered any more; nothing waits for them. */
export function callbacksOf(resources: OperatorResources, person: Person): PartOfForgetting {
  const { db, redis } = resources;
  const { userId, quoted, nested } = person;
  const stream = DEFAULT_INPUT_STREAM;
  const entries = streamPlace({
    ...{ redis, stream },
    look: lookFor({ redis, stream, userId }, [userId], [INPUT_FIELD, 'user_id']),
    removable: (ids) => readByAll(redis, stream, ids),
  });
  const ofUser = (name: string, ...key: string[]): Place => {
    // Keys that begin with the kind are found by both.
    const where = key[0] === 'kind' ? "kind IN ('hourly', 'daily') AND user_id = $1" : 'user_id = $1';
    return rowsOf(db, { table: `notification.${name}`, key, where, values: [userId] });
  };
  const places: Place[] = [
    entries,
    ofUser('callback_trackings', 'user_id'),
    ofUser('failed_callbacks', 'kind', 'user_id', 'period_start_ms'),
    ofUser('callback_dead_letters', 'kind', 'user_id', 'period_start_ms'),
    ofUser('callback_snapshots', 'kind', 'user_id', 'period_start_ms'),
    walkOf(db, {
      table: 'notification.malformed_account_inputs',
      key: ['stream_entry_id'],
      where: `EXISTS (SELECT FROM unnest($1::text[]) AS one (value) WHERE strpos(raw_fields::text, one.value) > 0)`,
      values: [[...quoted, ...nested]],
    }),
  ];
  return {
    places,
    async underWay() {
      await entries.count();
      return sentence(
        entries.left().own,
        `is in ${stream} and not taken yet`,
        'wait; galaxy-notify doctor says whether somebody takes them',
        'entry',
      );
    },
    remains: () => Promise.resolve([]),
  };
}

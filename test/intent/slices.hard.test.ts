/** Slices of a backlog in two processes, of which one is killed. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import {
  allPublished,
  append,
  createFleet,
  deliveriesTo,
  nothingLeftRunning,
  outboundIds,
} from '../service-process.ts';
import { turn } from './entries.ts';

const LIMIT_MS = 120_000;
const TEST_LIMIT_MS = 300_000;

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

test(
  'I56 I36 two processes share the slices of a backlog, one is killed in the middle: each route is handed off once',
  async () => {
    const fleet = createFleet(slot);
    const env = {
      NOTIFICATION_INTENTS_PER_WORKFLOW: '25',
      // Each process looks this user up once.
      NOTIFICATION_USER_SERVICE_REUSE: '5m',
      NOTIFICATION_USER_SERVICE_TIMEOUT: '5m',
    };
    try {
      const lookups = holdAnswers();
      slot.userService.fail({ failure: lookups.failure });
      const [first] = await Promise.all([fleet.start(env), fleet.start(env)]);
      const ids = await append(
        slot.redis,
        Array.from({ length: 1_000 }, (_, index) =>
          turn({ idempotency_key: `key-${index}`, recipient_user_ids_json: '["user-1"]' }),
        ),
      );
      await eventually('both to have some', async () => slot.userService.requests.length === 2);
      lookups.release();
      await eventually('some to be accepted', async () => {
        const { rows } = await slot.db.query('SELECT FROM notification.records LIMIT 200');
        return rows.length === 200;
      });
      await first.end('SIGKILL');
      await allPublished(slot, 2 * ids.length, LIMIT_MS);
      await nothingLeftRunning(slot, LIMIT_MS);
      expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    } finally {
      await fleet.killAll();
    }
  },
  TEST_LIMIT_MS,
);

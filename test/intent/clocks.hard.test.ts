/**
 * A process whose clock is wrong: what intents wait for is a difference that one clock has computed. Fault runs have processes of
 * all kinds of work with such clocks, see faults/plan.ts.
 */
import { clockAhead } from '../../faults/skewed-clock.ts';
import { slotOfEachTest } from '../harness.ts';
import { MAIL, append, fleetOfEachTest } from '../service-process.ts';
import { publishTurn, turn } from './entries.ts';
import { EMAIL, routeIn, untilStatuses } from './rows.ts';

const DAY_MS = 86_400_000;

const slot = slotOfEachTest();
const fleet = fleetOfEachTest(() => slot);

test.each([
  ['ahead', DAY_MS],
  ['behind', -DAY_MS],
])(
  'I21 I78 intent-D9 security-13 a process whose clock is a day %s skips only what is late, and keeps to the ladder',
  async (_, shiftMs) => {
    await fleet.start({
      NODE_OPTIONS: clockAhead(shiftMs),
      NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '4',
      NOTIFICATION_ROUTE_BACKOFF_MIN: '500ms',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
    });
    const expiring = (key: string, inMs: number) =>
      turn({ idempotency_key: key, expires_at_ms: String(Date.now() + inMs) });
    const [inTime, late] = await append(slot.redis, [
      expiring('in time', 3_600_000),
      expiring('late', -3_600_000),
    ]);
    await untilStatuses(slot, inTime!, ...Array<string>(4).fill('published'));
    await untilStatuses(slot, late!, ...Array<string>(4).fill('expired'));

    await slot.redis.set(MAIL, 'not a stream');
    const id = await publishTurn(slot.redis, 'key');
    const { dead_lettered_at: diedAt, created_at: createdAt } = await routeIn(slot, id, EMAIL, 'dead_letter');
    // After 0.5 s, 1 s and 2 s.
    expect(diedAt!.getTime() - createdAt.getTime()).toBeGreaterThan(3_400);
  },
  180_000,
);

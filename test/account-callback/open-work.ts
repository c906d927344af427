/** Account callbacks that are under way: one that the portfolio service refuses, and inputs read and not yet kept. */
import { DEFAULT_INPUT_STREAM } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import type { Held, OpenWork } from '../open-work.ts';
import { holdEntries } from '../open-work.ts';
import { HOUR, expectationsOf, hour, takeCallbackBench } from './callbacks.ts';

const GROUP = 'notifications';
const LIMIT_MS = 60_000;

export async function openCallbackWork(slot: Slot): Promise<OpenWork> {
  const bench = await takeCallbackBench(slot, { acceptsUnsigned: true });
  const { portfolio } = bench;
  const nowMs = Date.now();
  const startMs = nowMs - (nowMs % HOUR) - HOUR;
  const [told, refused, unread] = ['told', 'refused', 'unread'].map((user, index) =>
    hour(user, startMs, index),
  );
  const callsOf = (userId: string) =>
    bench
      .calls('hourly')
      .filter((call) => call.userId === userId)
      .filter(({ body }) => (JSON.parse(body) as { period_start_ms: number }).period_start_ms === startMs);
  const kept = async (): Promise<number> =>
    (await bench.rows('SELECT 1 FROM notification.callback_snapshots')).length;
  let held: Held | undefined;

  return {
    role: 'account-callback',
    env: {
      NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
      NOTIFICATION_CALLBACK_SHARDS: '1',
      NOTIFICATION_CALLBACK_RETRY_LADDER: Array<string>(200).fill('1s').join(),
    },

    async begin() {
      portfolio.fail({ userId: 'refused', failure: { kind: 'status', status: 503 } });
      await appendInputs(slot.redis, [told!, refused!]);
      await eventually('the inputs to be kept', async () => (await kept()) === 2);
      await bench.runNow();
      await eventually('one to be told, the other to be tried again', async () => {
        const [isTold, attempts] = [callsOf('told')[0]?.isAcknowledged, callsOf('refused').length];
        return isTold && attempts > 1;
      });
      const entries = await holdEntries(slot, {
        stream: DEFAULT_INPUT_STREAM,
        group: GROUP,
        table: 'notification.callback_snapshots',
      });
      held = entries;
      const [entry] = await appendInputs(slot.redis, [unread!]);
      await entries.untilRead(entry!);
    },

    stopped: async () => held?.release(),

    heal: async () => portfolio.heal(),

    async finish() {
      await eventually('the inputs to be kept', async () => (await kept()) === 3, LIMIT_MS);
      const users = ['told', 'refused', 'unread'];
      await eventually(
        'everybody to be told',
        async () => {
          await bench.runNow();
          return users.every((user) => callsOf(user).some(({ isAcknowledged }) => isAcknowledged));
        },
        LIMIT_MS,
      );
      await eventually('nothing to be left', async () => {
        const left = await bench.rows(
          `SELECT 1 FROM notification.failed_callbacks UNION ALL SELECT 1 FROM notification.callback_dead_letters`,
        );
        return left.length === 0;
      });
      const expected = expectationsOf([told!, refused!, unread!]);
      for (const userId of users) {
        const calls = callsOf(userId);
        expect([userId, calls.filter(({ isAcknowledged }) => isAcknowledged).length]).toEqual([userId, 1]);
        expect(new Set(calls.map(({ body, idempotencyKey }) => `${idempotencyKey} ${body}`)).size).toBe(1);
        expect(portfolio.held({ userId, kind: 'hourly', periodStartMs: startMs })).toEqual(
          expected(userId, 'hourly', startMs),
        );
      }
    },

    async release() {
      await held?.release();
      await bench.release();
    },
  };
}

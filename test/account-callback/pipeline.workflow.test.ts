/** The alarms of a shard: the steps of each, their caps, and when the next one is due. */
import type { AccountCallbackActivities } from '../../activities/account-callback/activities.ts';
import type { CallbackState } from '../../workflows/account-callback/contract.ts';
import { CALLBACK_STATUS_QUERY, RUN_NOW_UPDATE } from '../../workflows/account-callback/contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { startWorkflow } from '../workflow-tier.ts';
import { MINUTE, SECOND } from './values.ts';

interface Shard {
  /** Callbacks of a day, and of each hour, that are to be delivered. */
  daily?: number;
  hourly?: number[];
  /** After the beginning of an hour, ms. */
  timeMs?: number;
  isBehind?: boolean;
  isDaySettled?: boolean;
  retryInMs?: number;
}

/** Starts a shard and runs its first alarm. `alarms` has the pages of each alarm. */
async function beginShard(shard: Shard) {
  const { daily = 0, hourly = [], timeMs = 0, retryInMs, ...found } = shard;
  const left = { daily: [daily], hourly: [...hourly] };
  const alarms: string[][] = [[]];
  const activities = {
    emitCallbacks(_shard, kind, after, limit) {
      if (!left[kind][0]) left[kind].shift();
      const begun = Math.min(limit, left[kind][0] ?? 0);
      left[kind][0]! -= begun;
      alarms.at(-1)!.push(`${kind} ${begun}${after ? ' resumed' : ''}`);
      return { begun, ...(begun > 0 && { upTo: { periodStartMs: 0, last: '1' } }) };
    },
    retryCallbacks(_shard, nowMs) {
      alarms.push([]);
      const nextRetryMs = retryInMs === undefined ? undefined : nowMs + retryInMs;
      return { isDaySettled: false, isBehind: false, ...found, nextRetryMs };
    },
  } satisfies Fakes<AccountCallbackActivities>;
  const run = await startWorkflow('accountCallback', [{ shard: 0, clockOffsetMs: timeMs }], { activities });
  await run.advance();
  const status = () => run.query<CallbackState>(CALLBACK_STATUS_QUERY);
  return { run, status, alarms: () => alarms.slice(0, -1) };
}

test('C1 C2 C3 the steps follow one another, and what 500 callbacks of one alarm leave is resumed by the next', async () => {
  const { run, alarms } = await beginShard({ daily: 620, hourly: [620], timeMs: 30 * MINUTE });
  await run.advance(300);
  expect(alarms()).toEqual([
    ['daily 500'],
    ['daily 120 resumed', 'hourly 380'],
    ['daily 0 resumed', 'hourly 240 resumed', 'hourly 0 resumed', 'daily 0', 'hourly 0'],
    ['daily 0', 'hourly 0'],
  ]);
  await run.advance(4 * MINUTE);
  expect(alarms()).toHaveLength(4);
});

test('C9 one alarm goes through ten hours at most', async () => {
  const { run, alarms } = await beginShard({ hourly: Array<number>(12).fill(1), timeMs: 30 * MINUTE });
  await run.advance(100);
  const [first, second] = alarms();
  expect(first!.filter((page) => page.startsWith('hourly 1'))).toHaveLength(10);
  expect(second!.filter((page) => page.startsWith('hourly 1'))).toHaveLength(2);
});

const HALF_PAST = 30 * MINUTE;
test.each<[string, Shard, CallbackState['nextAlarm'] & object]>([
  ['more is to be delivered', { daily: 1, timeMs: HALF_PAST }, { interval: 'pending', atMs: 100 }],
  ['more, and a tracking is behind', { daily: 1, isBehind: true }, { interval: 'pending', atMs: 100 }],
  ['a day is settled by its retry', { isDaySettled: true }, { interval: 'pending', atMs: 100 }],
  ['a tracking is behind', { isBehind: true, timeMs: HALF_PAST }, { interval: 'waiting', atMs: MINUTE }],
  ['an hour has just ended', { timeMs: 5 * MINUTE - 1 }, { interval: 'waiting', atMs: MINUTE }],
  ['nothing waits', { timeMs: 5 * MINUTE }, { interval: 'steady', atMs: 5 * MINUTE }],
  ['the hour ends sooner', { timeMs: 58 * MINUTE }, { interval: 'steady', atMs: 2 * MINUTE }],
  [
    'a retry is due sooner',
    { retryInMs: 10 * SECOND, timeMs: HALF_PAST },
    { interval: 'steady', atMs: 10 * SECOND },
  ],
  ['a retry is overdue', { retryInMs: -MINUTE, timeMs: HALF_PAST }, { interval: 'steady', atMs: 1 }],
])('C1 the next alarm when %s', async (_what, shard, { interval, atMs }) => {
  const { run, status } = await beginShard(shard);
  expect((await status()).nextAlarm).toEqual({ interval, atMs: run.nowMs + atMs });
  await run.advance(atMs);
  expect(run.calls('retryCallbacks')).toHaveLength(2);
});

test('C1 an alarm that is asked for comes immediately', async () => {
  const { run, alarms } = await beginShard({ timeMs: HALF_PAST });
  expect(await run.update<CallbackState>(RUN_NOW_UPDATE)).toMatchObject({
    nextAlarm: { interval: 'steady' },
  });
  expect(alarms()).toHaveLength(2);
});

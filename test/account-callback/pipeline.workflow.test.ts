/** The alarms of a shard: the steps of each, their caps, and when the next one is due. */
import type { AccountCallbackActivities } from '../../activities/account-callback/activities.ts';
import type { CallbackState, RetryResult } from '../../workflows/account-callback/contract.ts';
import { CALLBACK_STATUS_QUERY, RUN_NOW_UPDATE } from '../../workflows/account-callback/contract.ts';
import { RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
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

/** Asks a shard for an alarm at a time. `alarms` has the pages of that and of those after it. */
async function beginShard({ timeMs = 0, daily = 0, hourly = [], retryInMs, ...found }: Shard) {
  const left = { daily: [0], hourly: [0] };
  let alarms: string[][] = [];
  let waits: Partial<RetryResult> & { retryInMs?: number | undefined } = {};
  const activities = {
    emitCallbacks(_shard, kind, after, limit) {
      if (!left[kind][0]) left[kind].shift();
      const begun = Math.min(limit, left[kind][0] ?? 0);
      left[kind][0]! -= begun;
      alarms.at(-1)?.push(`${kind} ${begun}${after ? ' resumed' : ''}`);
      return { begun, ...(begun > 0 && { upTo: { periodStartMs: 0, last: '1' } }) };
    },
    retryCallbacks(_shard, nowMs) {
      alarms.push([]);
      const { retryInMs: inMs, ...rest } = waits;
      const nextRetryMs = inMs === undefined ? undefined : nowMs + inMs;
      return { isDaySettled: false, isBehind: false, ...rest, nextRetryMs };
    },
  } satisfies Fakes<AccountCallbackActivities>;
  const run = await startWorkflow('accountCallback', [{ shard: 0 }], { activities });
  await run.advance(timeMs);
  Object.assign(left, { daily: [daily], hourly: [...hourly] });
  alarms = [[]];
  waits = { ...found, retryInMs };
  const { nextAlarm } = await run.update<CallbackState>(RUN_NOW_UPDATE);
  return { run, nextAlarm, alarms: () => alarms.slice(0, -1) };
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
])(
  'C1 an alarm that is asked for comes immediately, and the next one when %s',
  async (_what, shard, { interval, atMs }) => {
    const { run, nextAlarm, alarms } = await beginShard(shard);
    expect(nextAlarm).toEqual({ interval, atMs: run.nowMs + atMs });
    expect(await run.query<CallbackState>(CALLBACK_STATUS_QUERY)).toMatchObject({ nextAlarm: nextAlarm! });
    expect(await run.details()).toContain(`(${interval})`);
    await run.advance(atMs);
    expect(alarms()).toHaveLength(2);
  },
);

test('I51 a shard that is to be renewed goes on in a new run with what it knows', async () => {
  const { run } = await beginShard({ timeMs: HALF_PAST });
  run.signal(RENEW_SIGNAL);
  const { args } = await run.continuation();
  const nextAlarm = { interval: 'steady', atMs: run.nowMs + 5 * MINUTE };
  expect(args).toEqual([{ shard: 0 }, { shard: 0, nextAlarm }]);
});

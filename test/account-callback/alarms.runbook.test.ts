/** Alarms about account values, each with its fault, and its section of the runbook carried out. */
import { DEFAULT_INPUT_STREAM } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { eventually } from '../harness.ts';
import { drillGround } from '../runbook/drill.ts';
import { DAY, HOUR, hour, benchOfTests, track } from './callbacks.ts';

const hanging = holdAnswers();
let entry = '';
/** The hour before this one. */
const lastHour = () => Date.now() - (Date.now() % HOUR) - HOUR;

const ground = drillGround({
  env: () => ({
    NOTIFICATION_ROLES: 'account-callback',
    NOTIFICATION_PORTFOLIO_BASE_URL: bench.portfolio.url,
    NOTIFICATION_CALLBACK_SHARDS: '1',
    // What waits long waits briefly.
    NOTIFICATION_CALLBACK_RETRY_LADDER: '1s,1s,1s,1s,1s',
    // A portfolio service that hangs holds up a shard for longer than a drill.
    NOTIFICATION_HTTP_TIMEOUT: '10m',
  }),
});
const { drill } = ground;

const bench = benchOfTests(ground.slot, { acceptsUnsigned: true });
beforeAll(() => ground.start(), 300_000);

const heal = async () => bench.portfolio.heal();
/** Users to whom the last hour is to be delivered. */
async function publish(...users: string[]): Promise<void> {
  await appendInputs(
    ground.slot.redis,
    users.map((user) => hour(user, lastHour())),
  );
  await eventually('their snapshots', async () => {
    const rows = await bench.rows('SELECT FROM notification.callback_snapshots WHERE user_id = ANY ($1)', [
      users,
    ]);
    return rows.length === users.length;
  });
}
/** The same, delivered by an alarm of the shard. */
async function deliver(...users: string[]): Promise<void> {
  await publish(...users);
  await eventually('an alarm of the shard', () => bench.runNow());
}
const refuse = async () => bench.portfolio.fail({ failure: { kind: 'status', status: 503 } });

drill({
  alarm: 'CallbacksFail',
  fault: 'the portfolio service answers 503',
  inject: refuse,
  load: () => deliver(`fails-${Date.now()}`),
  says: { 'galaxy-notify callbacks failed': /503/ },
  deeds: [{ words: 'fix it', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'CallbackRetriesFail',
  fault: 'the portfolio service answers 503 to every retry',
  inject: async () => {
    await refuse();
    await deliver(...Array.from({ length: 5 }, (_, index) => `retries-${index}`));
  },
  says: { 'galaxy-notify callbacks failed': /503/ },
  deeds: [{ words: 'as for CallbacksFail', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'CallbacksDropped',
  fault: 'the portfolio service answered 503 for longer than the ladder',
  inject: async () => {
    await refuse();
    await deliver('dropped');
  },
  says: { 'galaxy-notify callbacks failed --dead': /dropped/ },
  deeds: [{ words: 'fix it', act: heal, before: 'galaxy-notify callbacks replay' }],
  cleanUp: heal,
});

drill({
  alarm: 'CallbackInputsMalformed',
  fault: 'a producer appends what the contract forbids',
  inject: async () => {
    entry = (await ground.slot.redis.xadd(DEFAULT_INPUT_STREAM, '*', 'kind', 'hour'))!;
  },
  examples: () => ({ '1790000000000-0': entry }),
  deeds: [
    {
      words: 'must send the value again',
      act: () => appendInputs(ground.slot.redis, [hour('corrected', lastHour())]),
    },
  ],
});

drill({
  alarm: 'CallbackInputsLate',
  fault: 'a producer corrects an hour after it was delivered',
  inject: async () => {
    await deliver('corrected-late');
    await appendInputs(ground.slot.redis, [hour('corrected-late', lastHour(), 11)]);
  },
  examples: () => ({ 'user-1': 'corrected-late' }),
});

describe('entries', () => {
  let feeding: NodeJS.Timeout | undefined;
  const feed = async () => {
    const again = [hour('fed', lastHour() - HOUR)];
    feeding = setInterval(() => void appendInputs(ground.slot.redis, again).catch(() => undefined), 1_000);
  };
  afterAll(() => clearInterval(feeding));

  drill({
    alarm: 'CallbackInputsStopped',
    fault: 'the producer of extremes stopped',
    prepare: async () => {
      await feed();
      const counted = 'notification_callbacks_inputs_total{kind="hour"}';
      await eventually('an hour to be counted', () => ground.prometheus.isTrue(counted));
    },
    inject: async () => clearInterval(feeding),
    deeds: [{ words: 'start the producers again', act: feed }],
  });
});

let alarmOfShard: Promise<unknown>;
drill({
  alarm: 'CallbacksBehind',
  fault: 'the portfolio service hangs',
  inject: async () => {
    bench.portfolio.fail({ failure: hanging.failure });
    await publish('behind');
    alarmOfShard = bench.runNow();
    alarmOfShard.catch(() => undefined);
    // Of all that waits: the shard is as late as the earliest hour is, and another drill may have left one.
    await bench.rows(
      "UPDATE notification.callback_snapshots SET created_at = '2026-01-01' WHERE status = 'pending'",
    );
  },
  says: { 'galaxy-notify callbacks status': /PENDING/ },
  deeds: [
    {
      words: 'Fix a portfolio service that hangs',
      async act() {
        hanging.release();
        await heal();
        await alarmOfShard;
      },
    },
  ],
});

drill({
  alarm: 'CallbackTrackingsOverdue',
  fault: 'a producer tracks a user and sends no day',
  inject: async () => {
    await appendInputs(ground.slot.redis, [track('silent', Date.now() - 3 * DAY)]);
    await eventually('the tracking to be old', async () => {
      const rows = await bench.rows(
        `UPDATE notification.callback_trackings SET changed_at = '2026-01-01' WHERE user_id = 'silent' RETURNING 1`,
      );
      return rows.length === 1;
    });
  },
  examples: () => ({ 'user-1': 'silent' }),
  says: { 'galaxy-notify callbacks overdue': /silent/, 'galaxy-notify doctor': /silent/ },
});

/** Alarms about account values, each with its fault, and its section of the runbook carried out. */
import { DEFAULT_INPUT_STREAM } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { eventually, operatorOf } from '../harness.ts';
import { drillGround } from '../runbook/drill.ts';
import type { CallbackBench } from './callbacks.ts';
import { HOUR, MINUTE, SECOND, positions, price, takeCallbackBench } from './callbacks.ts';

const BY = { requestedBy: 'drill' };
let bench: CallbackBench;
let entry = '';
/** The hour before this one. */
const hour = () => Date.now() - (Date.now() % HOUR) - HOUR;

const ground = drillGround({
  env: () => ({
    NOTIFICATION_ROLES: 'account-callback',
    NOTIFICATION_PORTFOLIO_BASE_URL: bench.portfolio.url,
    NOTIFICATION_CALLBACK_SHARDS: '1',
    // What waits long waits briefly.
    NOTIFICATION_CALLBACK_RETRY_LADDER: '1s,1s,1s,1s,1s',
  }),
});
const { drill } = ground;

beforeAll(async () => {
  // The slot is the ground's, which releases it.
  bench = await takeCallbackBench(
    { ...ground.slot, release: async () => undefined },
    { acceptsUnsigned: true },
  );
  await ground.start();
  const at = hour();
  await appendInputs(ground.slot.redis, [
    price('BTC', at, '10'),
    price('BTC', at + 20 * MINUTE, '30'),
    // Says that the hour before is complete.
    price('BTC', at + HOUR, '20'),
  ]);
}, 300_000);
afterAll(() => bench.release());

const heal = async () => bench.portfolio.heal();
/** Users who are to be told about the last hour. */
async function track(...users: string[]): Promise<void> {
  await appendInputs(
    ground.slot.redis,
    users.map((user) => positions(user, hour(), '5', { BTC: '1' })),
  );
  await eventually('their tracking', async () => {
    const rows = await bench.rows('SELECT FROM notification.callback_trackings WHERE user_id = ANY ($1)', [
      users,
    ]);
    return rows.length === users.length;
  });
}
const refuse = () => bench.portfolio.fail({ failure: { kind: 'status', status: 503 } });
const manyUsers = (name: string) => Array.from({ length: 5 }, (_, index) => `${name}-${index}`);
const runNow = () => eventually('the shard to compute', () => bench.runNow());

drill({
  alarm: 'CallbacksFail',
  fault: 'the portfolio service answers 503',
  inject: async () => refuse(),
  load: async () => {
    await track(`fails-${Date.now()}`);
    await runNow();
  },
  says: { 'galaxy-notify callbacks failed': /503/ },
  deeds: [{ words: 'mend it', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'CallbackRetriesFail',
  fault: 'the portfolio service answers 503 to every retry',
  inject: async () => {
    refuse();
    await track(...manyUsers('retries'));
    await runNow();
  },
  says: { 'galaxy-notify callbacks failed': /503/ },
  deeds: [{ words: 'as for CallbacksFail', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'CallbacksDropped',
  fault: 'the portfolio service answered 503 for longer than the ladder',
  inject: async () => {
    refuse();
    await track('dropped');
    await runNow();
  },
  says: { 'galaxy-notify callbacks failed --dead': /dropped/ },
  deeds: [{ words: 'mend it', act: heal, before: 'galaxy-notify callbacks replay' }],
  cleanUp: heal,
});

drill({
  alarm: 'CallbackInputsMalformed',
  fault: 'a producer appends what the contract forbids',
  inject: async () => {
    entry = (await ground.slot.redis.xadd(DEFAULT_INPUT_STREAM, '*', 'type', 'price'))!;
  },
  examples: () => ({ '1790000000000-0': entry }),
  deeds: [
    {
      words: 'must send the value again',
      act: () => appendInputs(ground.slot.redis, [price('BTC', Date.now(), '20')]),
    },
  ],
});

drill({
  alarm: 'CallbackInputsLate',
  fault: 'a producer publishes a price after its hour was computed',
  inject: () => appendInputs(ground.slot.redis, [price('BTC', hour() + MINUTE, '11')]),
});

describe('prices', () => {
  let feeding: NodeJS.Timeout | undefined;
  const feed = async () => {
    feeding = setInterval(
      () => void appendInputs(ground.slot.redis, [price('ETH', Date.now(), '7')]).catch(() => undefined),
      SECOND,
    );
  };
  afterAll(() => clearInterval(feeding));

  drill({
    alarm: 'CallbackInputsStopped',
    fault: 'the producer of prices stopped',
    prepare: feed,
    inject: async () => clearInterval(feeding),
    deeds: [{ words: 'start the producers again', act: feed }],
  });
});

drill({
  alarm: 'CallbacksBehind',
  fault: 'an operator paused a shard and forgot it',
  inject: async () => {
    await operatorOf(ground.slot).callbacks.pause(0, BY);
    const at = hour() - HOUR;
    await appendInputs(ground.slot.redis, [
      price('XRP', at, '1'),
      positions('behind', at, '5', { XRP: '1' }),
    ]);
  },
  says: { 'galaxy-notify callbacks status': /paused/ },
  deeds: [
    {
      words: 'Resume a shard that is paused',
      act: () => operatorOf(ground.slot).callbacks.resume(0, BY),
    },
  ],
});

drill({
  alarm: 'CallbackShardPaused',
  fault: 'an operator paused a shard',
  inject: () => operatorOf(ground.slot).callbacks.pause(0, BY),
  examples: () => ({ 'resume 2': 'resume 0' }),
  says: { 'galaxy-notify callbacks status': /paused/, 'galaxy-notify actions list': /drill/ },
});

drill({
  alarm: 'CallbackAccountsSetAside',
  fault: 'positions in the table are no numbers',
  prepare: () => operatorOf(ground.slot).callbacks.pause(0, BY),
  inject: async () => {
    await track('broken');
    await bench.rows(
      `UPDATE notification.callback_positions SET coefficients = '{"BTC": "much"}' WHERE user_id = 'broken'`,
    );
    await operatorOf(ground.slot).callbacks.resume(0, BY);
    await runNow();
  },
  examples: () => ({ 'user-1': 'broken' }),
  says: { 'galaxy-notify callbacks set-aside': /no decimal/ },
  deeds: [
    {
      words: 'mend it',
      before: 'galaxy-notify callbacks take-up',
      act: () =>
        bench.rows(
          `UPDATE notification.callback_positions SET coefficients = '{"BTC": "3"}' WHERE user_id = 'broken'`,
        ),
    },
  ],
  // Nobody is left after the first.
  codes: { 'galaxy-notify callbacks take-up --all': 3 },
});

/** What operators are told about one account, and why its values are what they are. */
import type { Operator } from '../../client/operator.ts';
import { NotFoundError } from '../../client/errors.ts';
import { cliFor } from '../command-line.ts';
import { eventually } from '../harness.ts';
import type { CallbackBench } from './callbacks.ts';
import {
  CALLBACK_ENV,
  DAY,
  HOUR,
  MIDNIGHT,
  MINUTE,
  positions,
  price,
  takeCallbackBench,
} from './callbacks.ts';

const START = MIDNIGHT - 3 * HOUR;

let bench: CallbackBench;
let operator: Operator;
let desk: ReturnType<typeof cliFor>;
beforeAll(async () => {
  bench = await takeCallbackBench();
  desk = cliFor(bench.slot);
  operator = bench.operator();
  await bench.store([
    positions('zoe', START, '10', { BTC: '2', ETH: '-1' }),
    positions('zoe', START + HOUR + 30 * MINUTE, '5', { BTC: '1' }),
    positions('idle', START, '1', { NEVER: '1' }),
    price('BTC', START - 1, '100'),
    price('ETH', START - 1, '7'),
    price('BTC', START + 10 * MINUTE, '150.5'),
    price('BTC', START + 20 * MINUTE, '90'),
    price('BTC', MIDNIGHT, '120'),
    price('ETH', MIDNIGHT + HOUR, '7'),
    price('BTC', MIDNIGHT + HOUR, '110'),
    price('BTC', START - 1_000, '1'),
  ]);
  // Hours are told; the day is not taken.
  bench.portfolio.fail({ userId: 'dead', failure: { kind: 'status', status: 503 } });
  await bench.store([positions('dead', START, '1', {})]);
  await bench.setClock(MIDNIGHT + 5 * MINUTE);
  await bench.startService({ NOTIFICATION_CALLBACK_RETRY_LADDER: '100ms' });
  await bench.settled(MIDNIGHT);
  await eventually('what fails to be given up', async () => {
    const { items } = (await operator.callbacks.show('dead', { status: 'dead' })).callbacks;
    return items.length === 4;
  });
}, 120_000);
afterAll(async () => {
  desk.dispose();
  await bench.release();
});

const showOf = (...args: string[]) => desk.cli(['callbacks', 'show', ...args], { changes: CALLBACK_ENV });

test('C4 U1 an account is shown with what it holds, what was told and what was given up', async () => {
  const { tracking, positions: held, callbacks } = await operator.callbacks.show('zoe');
  expect(tracking).toMatchObject({ shard: 0, computedUpTo: new Date(MIDNIGHT), dailyDate: '2026-03-28' });
  expect(tracking!.link).toContain('account-callback%2F0');
  expect(held.items).toEqual([
    { at: new Date(START + HOUR + 30 * MINUTE), cash: '5', coefficients: { BTC: '1' } },
    { at: new Date(START), cash: '10', coefficients: { BTC: '2', ETH: '-1' } },
  ]);
  expect(
    callbacks.items.map(({ kind, status, periodStart }) => [kind, status, periodStart.getTime()]),
  ).toEqual([
    ['hourly', 'told', START + 2 * HOUR],
    ['hourly', 'told', START + HOUR],
    ['hourly', 'told', START],
    ['daily', 'told', MIDNIGHT - DAY],
  ]);
  const { callbacks: daily } = await operator.callbacks.show('zoe', {
    kind: 'daily',
    status: 'told',
    limit: 1,
  });
  expect(daily).toMatchObject({ hasMore: false, items: [{ kind: 'daily', peakValue: '304' }] });
  expect((await operator.callbacks.show('zoe', { limit: 1 })).callbacks.hasMore).toBe(true);
  expect((await operator.callbacks.show('zoe', { status: 'pending' })).callbacks.items).toEqual([]);

  const [given] = (await operator.callbacks.show('dead', { kind: 'daily' })).callbacks.items;
  expect(given).toMatchObject({ status: 'dead', attempts: 2, lastError: 'status 503: scripted failure' });
  await expect(operator.callbacks.show('nobody')).rejects.toThrow(NotFoundError);
});

test('C4 U1 why the values of an hour and of a day are what they are', async () => {
  const hour = await operator.callbacks.explain('zoe', { kind: 'hourly', at: new Date(START + 59 * MINUTE) });
  expect(hour).toMatchObject({ periodStart: new Date(START), callback: { status: 'told' } });
  expect(
    hour.values.map(({ what, value, at, why, isDerived }) => [what, value, at.getTime(), why, isDerived]),
  ).toEqual([
    ['peak', '304', START + 10 * MINUTE, 'cash 10 + 2 × 150.5 of BTC + -1 × 7 of ETH', true],
    ['bottom', '183', START + 20 * MINUTE, 'cash 10 + 2 × 90 of BTC + -1 × 7 of ETH', true],
    ['closing', '183', START + HOUR - 1, 'cash 10 + 2 × 90 of BTC + -1 × 7 of ETH', true],
  ]);
  expect(hour.values[0]!.legs[0]).toEqual({
    ...{ symbol: 'BTC', coefficient: '2', price: '150.5' },
    priceAt: new Date(START + 10 * MINUTE),
  });
  const day = await operator.callbacks.explain('zoe', { kind: 'daily', at: new Date(MIDNIGHT - 1) });
  expect(day.values[2]).toMatchObject({ what: 'closing', value: '125', why: 'cash 5 + 1 × 120 of BTC' });

  // A price that comes later changes nothing of what was told, and is said.
  await bench.store([price('BTC', START + 5 * MINUTE, '1000'), price('BTC', START + 10 * MINUTE + 1, '1')]);
  await bench.rows("DELETE FROM notification.callback_prices WHERE symbol = 'BTC' AND price = 150.5");
  const late = await operator.callbacks.explain('zoe', { kind: 'hourly', at: new Date(START) });
  expect(late.values[0]).toMatchObject({ value: '304', isDerived: false });
  expect(late.values[0]!.why).toMatch(/^what is known now gives 2003 \(cash 10 \+ 2 × 1000 of BTC/);

  const explained = async (user: string, at: number) =>
    (await operator.callbacks.explain(user, { kind: 'hourly', at: new Date(at) })).why;
  expect(await explained('idle', START)).toMatch(/^the account had no value then/);
  expect(await explained('zoe', MIDNIGHT)).toMatch(/^its hours are computed up to 2026-03-29T00:00:00Z only/);
  await expect(explained('nobody', START)).rejects.toThrow(NotFoundError);
});

test('C4 U6 the command line shows an account, and says clearly that there is none', async () => {
  const shown = await showOf('zoe');
  expect(shown).toMatchObject({ code: 0, stderr: '' });
  expect(shown.stdout).toMatch(/ETH=-1/);
  expect(shown.stdout).toMatch(/daily +told +304/);
  const why = await showOf('zoe', '--kind', 'daily', '--period', '2026-03-28');
  expect(why).toMatchObject({ code: 0, stderr: '' });
  expect(why.stdout).toMatch(/Closing 125\n.*\n +why +cash 5 \+ 1 × 120 of BTC/);
  const json = await showOf('zoe', '--json', '--read-only');
  expect(JSON.parse(json.stdout)).toMatchObject({ userId: 'zoe', callbacks: { hasMore: false } });
  expect(await showOf('nobody')).toMatchObject({ code: 3, stdout: '' });
  expect((await showOf('nobody')).stderr).toContain('has no account here');
  expect((await showOf('zoe', '--period', '1h', '--status', 'told')).code).toBe(2);
});

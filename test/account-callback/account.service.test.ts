/** One account as operators see it: its tracking, and what became of its callbacks. */
import type { Operator } from '../../client/operator.ts';
import { NotFoundError } from '../../client/errors.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually } from '../harness.ts';
import { CALLBACK_ENV, DAY, HOUR, MIDNIGHT, MINUTE, day, hour, track, benchOfTests } from './callbacks.ts';

const START = MIDNIGHT - 3 * HOUR;

const bench = benchOfTests();
const desk = cliOfTests(() => bench.slot);
let operator: Operator;
beforeAll(async () => {
  operator = bench.operator();
  const users = ['zoe', 'dead'];
  await bench.store(
    users.flatMap((user) => [
      track(user, START),
      ...[0, 1, 2].map((index) => hour(user, START + index * HOUR, 100 + index)),
      day(user, MIDNIGHT - DAY, 294),
    ]),
  );
  bench.portfolio.fail({ userId: 'dead', failure: { kind: 'status', status: 503 } });
  await bench.setClock(MIDNIGHT + 5 * MINUTE);
  await bench.startService({ NOTIFICATION_CALLBACK_RETRY_LADDER: '100ms' });
  await bench.settled();
  await eventually('what fails to be given up', async () => {
    const { items } = (await operator.callbacks.show('dead')).callbacks;
    return items.length === 4 && items.every(({ status }) => status === 'dropped');
  });
  // After the callback was emitted.
  await bench.store([hour('zoe', START, 77)]);
}, 120_000);

const showOf = (...args: string[]) => desk.cli(['callbacks', 'show', ...args], { changes: CALLBACK_ENV });

test('C4 U1 an account is shown with its tracking, and with callbacks that were delivered, given up or late', async () => {
  const { tracking, callbacks } = await operator.callbacks.show('zoe');
  expect(tracking).toMatchObject({
    ...{ shard: 0, isWaitedFor: true, caughtUpDate: '2026-03-28', dailyDate: '2026-03-28' },
    link: expect.stringContaining('account-callback%2F0') as string,
  });
  expect(
    callbacks.items.map(({ kind, status, periodStart }) => [kind, status, periodStart.getTime()]),
  ).toEqual([
    ['hourly', 'delivered', START + 2 * HOUR],
    ['hourly', 'delivered', START + HOUR],
    ['hourly', 'delivered', START],
    ['daily', 'delivered', MIDNIGHT - DAY],
  ]);
  expect(callbacks.items.map(({ lateEntries }) => lateEntries)).toEqual([0, 0, 1, 0]);
  expect(callbacks.items[2]!.lateValues).toMatchObject({ bottom_value: '77' });
  const { callbacks: day } = await operator.callbacks.show('zoe', { until: new Date(MIDNIGHT - DAY) });
  expect(day).toMatchObject({ hasMore: false, items: [{ kind: 'daily', peakValue: '304' }] });
  expect((await operator.callbacks.show('zoe', { limit: 1 })).callbacks.hasMore).toBe(true);
  expect((await operator.callbacks.show('zoe', { since: new Date(MIDNIGHT) })).callbacks.items).toEqual([]);

  const given = (await operator.callbacks.show('dead')).callbacks.items.at(-1);
  expect(given).toMatchObject({ status: 'dropped', attempts: 2, lastError: 'status 503: scripted failure' });
  await expect(operator.callbacks.show('nobody')).rejects.toThrow(NotFoundError);
});

test('C4 U6 the command line shows an account, and says clearly when it does not exist', async () => {
  const shown = await showOf('zoe');
  expect(shown).toMatchObject({ code: 0, stderr: '' });
  expect(shown.stdout).toMatch(/daily +delivered +304/);
  expect(shown.stdout).toMatch(/ 1 +\{.*"bottom_value":"77"/);
  const json = await showOf('zoe', '--json');
  expect(JSON.parse(json.stdout)).toMatchObject({ userId: 'zoe', callbacks: { hasMore: false } });
  expect(await showOf('nobody')).toMatchObject({ code: 3, stdout: '' });
  expect((await showOf('nobody')).stderr).toContain('has no account here');
});

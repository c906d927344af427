/** Shards that operators pause: nothing is told meanwhile, and everything afterwards, in order. */
import type { Operator } from '../../client/operator.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { EmissionPage } from '../../workflows/account-callback/contract.ts';
import { RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually } from '../harness.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { CALLBACK_ENV, HOUR, MIDNIGHT, MINUTE, hour, track, benchOfTests } from './callbacks.ts';

const START = MIDNIGHT + HOUR;

const bench = benchOfTests();
const collector = collectorOfTests();
const desk = cliOfTests(() => bench.slot);
let operator: Operator;
beforeAll(async () => {
  operator = bench.operator();
  await bench.store([track('ann', START), hour('ann', START)]);
  await bench.setClock(START + HOUR + 5 * MINUTE);
  await startService();
  await bench.settled();
}, 120_000);
// Whatever became of the test, the shard is open again for the next one.
afterEach(async () => {
  bench.portfolio.heal();
  await operator.callbacks.resume(0);
});

const startService = () =>
  bench.startService({
    // Longer than any test: nothing is given up meanwhile.
    NOTIFICATION_CALLBACK_RETRY_LADDER: Array<string>(3_000).fill('100ms').join(),
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  });
const gaugeOf = () => collector.latest('notification.callbacks.paused')[0]?.value;
const cli = (...args: string[]) => desk.cli(['callbacks', ...args], { changes: CALLBACK_ENV });
/** Beginnings of the hours of which `ann` was told. */
const toldHours = () =>
  bench
    .calls('hourly')
    .filter(({ userId, isAcknowledged }) => userId === 'ann' && isAcknowledged)
    .map(({ body }) => (JSON.parse(body) as { period_start_ms: number }).period_start_ms)
    .sort((a, b) => a - b);
/** Beginnings of the hours that were begun to be told, in order; a step that found the shard paused has told nothing of its page. */
const begunHours = async () => {
  const { events } = await bench.handle().fetchHistory();
  return events!.flatMap(({ activityTaskScheduledEventAttributes: task }) => {
    if (task?.activityType?.name !== 'emitCallbacks') return [];
    const page = JSON.parse(Buffer.from(task.input!.payloads![1]!.data!).toString()) as EmissionPage;
    return page.kind === 'hourly' ? [page.upTo.periodStartMs] : [];
  });
};
const detailsOf = async () => {
  const metadata = await bench.handle().query<{ currentDetails?: string }>('__temporal_workflow_metadata');
  return metadata.currentDetails;
};
const runIdOf = async () => (await bench.handle().describe()).runId;

test('C9 U7 a shard that is paused tells nothing, over new runs, an emptied Temporal and a restart; resumed, it tells all once and in order', async () => {
  expect(toldHours()).toEqual([START]);
  const paused = await cli('pause', '0', '--reason', 'a move', '--requested-by', 'nina', '--json');
  expect(paused).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(paused.stdout)).toMatchObject({ paused: { requestedBy: 'nina', reason: 'a move' } });
  const asked = (await operator.actions.list({ action: 'callbacks pause' })).items;
  expect(asked).toMatchObject([{ target: 'shard 0', requestedBy: 'nina', detail: 'a move' }]);

  // Hours pass. A new run, what Temporal has forgotten, and a new process look at what PostgreSQL says.
  const isPausedStill = async () => {
    expect((await bench.runNow()).paused).toMatchObject({ requestedBy: 'nina', reason: 'a move' });
    expect(await detailsOf()).toMatch(/^Paused by nina since .*: a move\n/);
    expect(toldHours()).toEqual([START]);
  };
  await isPausedStill();
  const before = await runIdOf();
  await bench.handle().signal(RENEW_SIGNAL);
  await eventually('another run', async () => (await runIdOf()) !== before);
  await isPausedStill();

  await bench.store([1, 2, 3].map((hours) => hour('ann', START + hours * HOUR)));
  await bench.setClock(START + 4 * HOUR + 5 * MINUTE);
  await isPausedStill();
  await startService();
  await isPausedStill();
  await eventually('the gauge', async () => gaugeOf() === 1);

  const status = await cli('status');
  expect(status.stdout).toContain(' paused ');
  expect(status.stderr).toMatch(/shard 0 is paused since .* by nina: a move; callbacks resume 0/);
  expect((await operator.callbacks.status())[0]!.paused).toMatchObject({ by: 'nina', reason: 'a move' });
  const { answers } = await operator.why('ann', { since: new Date(MIDNIGHT), limit: 9, retentionMs: HOUR });
  expect(answers.find(({ cause }) => cause === 'account_behind')?.sentence).toContain(
    'which nina has paused',
  );
  expect((await desk.cli(['doctor'], { changes: CALLBACK_ENV })).stdout).toMatch(
    /callbacks: shards.*paused: 0/,
  );

  expect(await cli('resume', '0', '--requested-by', 'omar')).toMatchObject({
    code: 0,
    stdout: 'shard 0 is open\n',
  });
  await bench.settled();
  await eventually('all to be told', async () => toldHours().length === 4);
  expect(toldHours()).toEqual([0, 1, 2, 3].map((hours) => START + hours * HOUR));
  expect([...new Set(await begunHours())]).toEqual([1, 2, 3].map((hours) => START + hours * HOUR));
  expect((await bench.status()).paused).toBeUndefined();
  await eventually('the gauge', async () => gaugeOf() === 0);
  expect((await operator.callbacks.status())[0]).not.toHaveProperty('paused');
  expect((await operator.actions.list({ action: 'callbacks resume' })).items[0]).toMatchObject({
    requestedBy: 'omar',
  });
  const { callbacks } = await operator.callbacks.show('ann', { kind: 'hourly', status: 'told' });
  expect(callbacks.items).toHaveLength(4);
}, 180_000);

test('C9 what waits for its retry is not tried while its shard is paused, and a row that says paused is enough', async () => {
  const told = toldHours();
  bench.portfolio.fail({ failure: { kind: 'status', status: 503 } });
  await bench.setClock(START + 5 * HOUR + 5 * MINUTE);
  await bench.store([hour('ann', START + 4 * HOUR)]);
  await bench.runNow();
  await eventually('an attempt to fail', async () => bench.calls('hourly').length > told.length);
  // As a Temporal that was put back to before the pause: its workflow knows nothing of it.
  await bench.rows(
    `INSERT INTO notification.holds VALUES ('shard', '0', true, NULL, 'nina', clock_timestamp())
     ON CONFLICT (kind, name) DO UPDATE SET is_paused = true, reason = NULL, changed_by = 'nina', changed_at = clock_timestamp()`,
  );
  await eventually('the workflow to know', async () => (await bench.runNow()).paused !== undefined);
  // What had begun before ends.
  await eventually('nothing under way', async () => {
    const { raw } = await bench.handle().describe();
    return (raw.pendingActivities ?? []).length === 0;
  });
  bench.portfolio.heal();
  const attempts = bench.calls('hourly').length;
  await bench.runNow();
  expect(bench.calls('hourly')).toHaveLength(attempts);
  expect(toldHours()).toEqual(told);

  await operator.callbacks.resume(0, { requestedBy: 'nina' });
  await eventually('the hour to be told', async () => toldHours().length === told.length + 1);
  expect(toldHours().at(-1)).toBe(START + 4 * HOUR);
}, 120_000);

test('C9 there is no pause of a shard that there is not', async () => {
  await expect(operator.callbacks.pause(7)).rejects.toThrow(NotFoundError);
  expect((await cli('pause', '7')).code).toBe(3);
  expect((await cli('pause', 'all')).code).toBe(2);
  expect((await cli('pause', '0', '--read-only')).code).toBe(2);
});

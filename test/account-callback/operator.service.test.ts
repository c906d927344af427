/** What comes in by the stream, and what operators see and do, through the client and the command line. */
import { callbackInputSchema, parseCallbackInput, problemOf } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { OperationFailedError } from '../../client/errors.ts';
import {
  CALLBACK_ENV,
  HOUR,
  NOON_YESTERDAY,
  hour,
  inputsTaken,
  track,
  untrack,
  benchOfTests,
} from './callbacks.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually } from '../harness.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { publishedContract, schemaNamed } from '../published-contract.ts';

const STREAM = 'stream.account.extremes';

const bench = benchOfTests();
const collector = collectorOfTests();
const desk = cliOfTests(() => bench.slot);
beforeAll(async () => {
  await bench.startService({
    NOTIFICATION_CALLBACK_SHARDS: '2',
    NOTIFICATION_CALLBACK_RETRY_LADDER: '100ms,100ms',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  });
});

const LAST_HOUR = NOON_YESTERDAY - HOUR;
const sumOf = (name: string, attributes?: Record<string, string>): number =>
  collector.sumOf(`notification.callbacks.${name}`, attributes);

test('kinds-V10 security-3 C7 inputs are kept once, whatever order they come in; what is malformed is kept with its reason and content, logged and counted', async () => {
  const at = LAST_HOUR;
  const { redis } = bench.slot;
  const good = [track('ann', at), hour('ann', at, 1), hour('ann', at - HOUR, 2)];
  await appendInputs(redis, good);
  const payload = (input: object) => ['payload', JSON.stringify(input)];
  const wrong = { ...hour('ann', at), closing_value: 5 };
  const hostile: [fields: (string | Buffer)[], problem: string][] = [
    [['payload', '{'], 'invalid_payload: payload is not valid JSON'],
    [payload({ kind: 'hour' }), 'invalid_payload: user_id: '],
    [payload(wrong), 'invalid_payload: closing_value: '],
    [payload(hour('ann', Date.now() + 72 * HOUR)), 'invalid_payload: hour_start_ms: '],
    [payload(track('u', Date.now() * 1_000)), 'invalid_payload: from_ms: is more than 172800000 ms ahead'],
    [payload({ ...hour('ann', at), more: 1 }), 'invalid_payload: payload: has an unknown field'],
    [payload(hour('a\u0000b', at)), 'invalid_payload: payload has a NUL character'],
    [['payload', '{"kind":"track","user_id":"u","from_ms":1,"__proto__":1}'], 'invalid_payload: '],
    [['other', 'x'], 'invalid_entry: payload is missing'],
    [['payload', '{}', 'payload', '{}'], 'invalid_entry: payload is given more than once'],
    [['payload', 'x'.repeat(20 * 1024)], 'entry_too_large: the entry has 20487 bytes'],
    [['payload', Buffer.from([0xff, 0xfe])], 'invalid_entry: payload is not UTF-8'],
  ];
  const ids: string[] = [];
  for (const [fields] of hostile) ids.push((await redis.xadd(STREAM, '*', ...fields))!);
  await appendInputs(redis, [...good, untrack('bob', at)]);
  await inputsTaken(redis);
  const kept = await bench.rows(
    "SELECT bottom_value FROM notification.callback_snapshots WHERE user_id = 'ann' ORDER BY 1",
  );
  expect(kept).toEqual([{ bottom_value: '1' }, { bottom_value: '2' }]);
  expect(await bench.rows('SELECT user_id FROM notification.callback_trackings')).toHaveLength(2);
  const { malformed } = bench.operator().callbacks;
  const { items } = await malformed();
  const found = ids.map((id) => items.find(({ entryId }) => entryId === id)!);
  expect(found.map(({ code, message }) => `${code}: ${message}`)).toEqual(
    hostile.map(([, problem]) => expect.stringMatching(`^${problem}`) as string),
  );
  const fieldsOf = (index: number) => found[index]!.rawFields;
  expect(fieldsOf(2)).toEqual({ payload: JSON.stringify(wrong) });
  expect(fieldsOf(10)).toEqual({ payload: `${'x'.repeat(4_096)}… (cut, 20480 bytes in all)` });
  expect((await malformed({ code: 'entry_too_large' })).items).toHaveLength(1);
  const refused = bench.slot.logs.filter((line) => line.msg === 'malformed account input recorded');
  expect(refused).toHaveLength(hostile.length);
  expect(JSON.stringify(refused)).not.toMatch(/xxxx|__proto__/);
  await eventually(
    'the counts',
    async () => sumOf('malformed_inputs') === hostile.length && sumOf('inputs', { kind: 'hour' }) === 4,
  );
  const mixed = { ...hour('ann', at), kind: 'day' } as never;
  await expect(appendInputs(redis, [mixed])).rejects.toThrow(OperationFailedError);
});

test('C7 inputs fit the published contract', () => {
  const { document, problems } = publishedContract<{
    components: { messages: Record<string, { examples: { payload: unknown }[] }> };
  }>('account-callback/input-asyncapi.yaml');
  for (const [name, schema] of [
    ['hour', 'Hour'],
    ['day', 'Day'],
    ['track', 'Track'],
    ['untrack', 'Untrack'],
  ] as const) {
    for (const { payload } of document.components.messages[name]!.examples) {
      expect(problems(schemaNamed(schema), payload)).toEqual([]);
      expect(callbackInputSchema.parse(payload)).toEqual(payload);
      expect(problemOf(payload, Date.parse('2100-01-01'))).toBeUndefined();
    }
    expect(problems(schemaNamed(schema), { kind: name })).not.toEqual([]);
  }
  expect(parseCallbackInput([], 0)).toMatchObject({ ok: false, code: 'invalid_entry' });
});

test('C5 the command line: entries, status, overdue trackings, what failed, a replay', async () => {
  const cli = (...args: string[]) => desk.cli(['callbacks', ...args], { changes: CALLBACK_ENV });
  expect((await cli('failed', '--dead')).code).toBe(3);
  bench.portfolio.fail({ userId: 'eve', failure: { kind: 'status', status: 503 } });
  const append = (input: object) => cli('append', JSON.stringify(input));
  expect(await append(track('eve', LAST_HOUR))).toMatchObject({ code: 0, stderr: '' });
  expect((await append(hour('eve', LAST_HOUR))).code).toBe(0);
  const wrong = await append({ ...hour('eve', LAST_HOUR), closing_value: 'much' });
  expect(wrong.stderr).toContain('closing_value');
  expect((await cli('append', '{')).code).toBe(2);
  await inputsTaken(bench.slot.redis);
  await bench.rows(`
    UPDATE notification.callback_trackings
       SET changed_at = '2026-01-01', caught_up_date = '2026-01-01' WHERE user_id = 'eve'`);
  expect((await cli('overdue')).stdout).toMatch(/eve +\d +2026-01-01/);
  await eventually('the gauge', async () => sumOf('overdue_trackings') === 1);
  expect((await desk.cli(['doctor'], { changes: CALLBACK_ENV })).stdout).toMatch(
    /callbacks: trackings.*not caught up in time: eve \(2026-01-01\)/,
  );
  expect((await cli('release')).code).toBe(2);
  expect((await cli('release', 'nobody')).code).toBe(3);
  expect(await cli('release', '--overdue')).toMatchObject({ code: 0, stdout: '1 tracking released\n' });
  expect((await cli('overdue')).code).toBe(3);
  await eventually(
    'eve to be dropped',
    async () => {
      await Promise.all([0, 1].map((shard) => bench.runNow(shard)));
      const { code } = await cli('failed', '--dead', '--user', 'eve', '--kind', 'hourly');
      return code === 0;
    },
    120_000,
  );
  const dead = await desk.json<{ items: object[] }>(['callbacks', 'failed', '--dead']);
  expect(dead.value.items).toEqual([
    expect.objectContaining({
      ...{ kind: 'hourly', userId: 'eve', attempts: 3, lastError: 'status 503: scripted failure' },
      link: expect.stringContaining('account-callback%2F') as string,
    }),
  ]);
  const status = await cli('status');
  expect(status.stdout).toMatch(/^SHARD +USERS +CAUGHT UP/);
  expect(status.stdout.trim().split('\n')).toHaveLength(3);
  expect(status.stderr).toMatch(/1 dead callback:/);
  const json = await desk.json<{ shards: { users: number; live: unknown }[] }>(['callbacks', 'status']);
  expect(json.value.shards.reduce((sum, { users }) => sum + users, 0)).toBe(2);
  expect(json.value.shards.every(({ live }) => live)).toBe(true);

  expect((await cli('replay')).code).toBe(2);
  expect((await cli('replay', '--user', 'nobody', '--yes')).code).toBe(3);
  expect(await cli('replay', '--all', '--dry-run')).toMatchObject({ code: 0, stdout: '' });
  bench.portfolio.heal();
  expect(await cli('replay', '--user', 'eve', '--kind', 'hourly', '--yes')).toMatchObject({
    code: 0,
    stdout: '1 callback tried again; see callbacks failed\n',
  });
  await eventually('eve to be told', async () =>
    bench.calls('hourly').some(({ userId, isAcknowledged }) => userId === 'eve' && isAcknowledged),
  );
  expect((await cli('replay', '--kind', 'hourly', '--yes')).code).toBe(3);
  await eventually('the counts', async () => {
    const kind = { kind: 'hourly' };
    return (
      sumOf('emissions', { ...kind, result: 'refused' }) === 1 &&
      sumOf('retries', { ...kind, result: 'refused' }) === 2 &&
      sumOf('retries', { ...kind, result: 'acknowledged' }) === 1 &&
      sumOf('dropped', kind) === 1
    );
  });
}, 480_000);

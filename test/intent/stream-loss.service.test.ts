/** What the reader does about a stream that loses entries: it finds out, says so, and reads again what may be missed. */
import { readFileSync } from 'node:fs';
import { defaultPayloadConverter } from '@temporalio/common';
import { Redis } from 'ioredis';
import { envelopeOf } from '../../api/intent/entry.ts';
import { offsetKey } from '../../api/intent/stream.ts';
import { LAST_ENTRY_ID } from '../../api/stream-ids.ts';
import type { BridgeProgress, StreamFindingKind } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Service } from '../../workers/service.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { mayUse } from '../redis-users.ts';
import { turnIntent } from './entries.ts';
import { countOf, intentStatusOf } from './rows.ts';

const slot = slotOfTests();

/** Each test has its own stream, and with it a reader and an offset. */
let stream = '';
let service: Service | undefined;
let count = 0;
beforeEach(async () => {
  stream = `intents-${(count += 1)}`;
  await mayUse(slot.redis, 'notify-intent', stream);
  slot.logs.length = 0;
});
afterEach(async () => {
  await stop();
  await slot.client.workflow
    .getHandle(bridgeWorkflowId(stream))
    .terminate()
    .catch(() => undefined);
});

async function start(): Promise<void> {
  service = await slot.startService({
    NOTIFICATION_RECONCILIATION_INTERVAL: '1s',
    NOTIFICATION_INTENTS_STREAM: stream,
  });
}
async function stop(): Promise<void> {
  await service?.stop();
  service = undefined;
}

const publish = (id = '*', key = `key-${(count += 1)}`) =>
  slot.redis.xadd(stream, id, ...Object.entries(envelopeOf(turnIntent(key))).flat()) as Promise<string>;

async function deliveriesOf(id: string): Promise<number> {
  const entries = await slot.redis.xrange('gateway:client-events', '-', '+');
  return entries.filter(([, fields]) => fields.includes(`${id}/push:user:user-1`)).length;
}
const delivered = (id: string) =>
  eventually(`${id} to be delivered`, async () => (await deliveriesOf(id)) > 0);
const passed = (id: string) =>
  eventually(`the offset to pass ${id}`, async () => (await slot.redis.get(offsetKey(stream))) === id);

/** The last heartbeat of the running reader, as the Web UI shows it. */
const progress = (what: string, matches: (progress: BridgeProgress) => boolean) =>
  eventually(what, async () => {
    const { raw } = await slot.client.workflow.getHandle(bridgeWorkflowId(stream)).describe();
    const payload = raw.pendingActivities?.[0]?.heartbeatDetails?.payloads?.[0];
    const found = payload && defaultPayloadConverter.fromPayload<BridgeProgress>(payload);
    return found && matches(found) && found;
  });
const has =
  (kind: StreamFindingKind) =>
  ({ findings }: BridgeProgress) =>
    findings.some((found) => found.kind === kind);
const finding = async (kind: StreamFindingKind) => {
  const { findings } = await progress(`the finding ${kind}`, has(kind));
  return findings.find((found) => found.kind === kind)!;
};
const findingLines = () =>
  slot.logs.filter(({ msg, stream: of }) => msg === 'stream finding' && of === stream);

test('security-1 a stream whose last id is used is read to its end, and goes on once its ids are set back', async () => {
  const honest = [await publish(), await publish()];
  await publish(LAST_ENTRY_ID);
  await start();
  for (const id of [...honest, LAST_ENTRY_ID]) await delivered(id);
  await passed(LAST_ENTRY_ID);
  expect((await finding('stream_ids_ahead')).message).toContain(LAST_ENTRY_ID);

  await slot.redis.eval(readFileSync('deploy/redis/set-ids-back.lua', 'utf8'), 1, stream, LAST_ENTRY_ID);
  const next = [await publish(), await publish(), await publish()];
  for (const id of next) await delivered(id);
  await passed(next.at(-1)!);
  await progress('the finding to end', (now) => !has('stream_ids_ahead')(now));
  expect(await deliveriesOf(honest[0]!)).toBe(1);
  expect(
    await countOf(slot, 'inbound_streams', 'stream = $1 AND passed_id <> $2', [stream, LAST_ENTRY_ID]),
  ).toBe(1);
});

test('I39 entries that were trimmed before they were read are counted and reported once', async () => {
  await start();
  const first = await publish();
  await passed(first);
  await stop();
  await publish();
  await publish();
  const kept = await publish();
  await slot.redis.xtrim(stream, 'MAXLEN', 1);
  await start();

  const { message, sinceMs } = await finding('entries_lost');
  expect(message).toContain(`2 entries were deleted behind offset ${first}`);
  expect(Math.abs(Date.now() - sinceMs)).toBeLessThan(20_000);
  expect(findingLines()).toMatchObject([
    { level: 'error', stream, offset: first, kind: 'entries_lost', reason: message },
  ]);
  await delivered(kept);

  await stop();
  await start();
  const next = await publish();
  const { findings } = await progress('a later check', ({ seen }) => seen?.lastGeneratedId === next);
  expect(findings).toEqual([]);
  expect(findingLines()).toHaveLength(1);
});

test('I39 a stream that was deleted is missed, and what comes back under lower ids is delivered', async () => {
  await start();
  const first = await publish();
  await delivered(first);
  await progress('the stream to be seen', ({ seen }) => seen?.lastGeneratedId === first);
  await slot.redis.del(stream);
  expect((await finding('stream_missing')).message).toContain(`read up to ${first}`);

  const lower = await publish(`${Date.now() - 600_000}-0`);
  await delivered(lower);
  await progress('the finding to end', ({ findings }) => findings.length === 0);
  expect(findingLines()).toMatchObject([{ kind: 'stream_missing', offset: first }]);
  expect(await deliveriesOf(first)).toBe(1);
});

test('I39 intent-D2 of a stream that falls back to an older state an hour is read again, and nothing is delivered twice', async () => {
  await start();
  const base = Date.now() - 60_000;
  // Long delivered, and forgotten by everybody.
  const old = await publish(`${base - 2 * 3_600_000}-0`);
  await delivered(old);
  const kept = [await publish(`${base}-0`), await publish(`${base + 1}-0`)];
  await Promise.all(kept.map(delivered));
  const backup = await slot.redis.dumpBuffer(stream);
  const lost = await publish(`${base + 10}-0`);
  await delivered(lost);
  await progress('the stream to be seen', ({ seen }) => seen?.lastGeneratedId === lost);
  for (const table of ['records', 'intents'])
    await slot.db.query(`DELETE FROM notification.${table} WHERE notification_id = $1`, [old]);
  await slot.redis.restore(stream, 0, backup, 'REPLACE');

  const { message } = await finding('stream_regressed');
  expect(message).toContain(`the last id ${base + 1}-0 is below the offset ${lost}`);
  const below = await publish(`${base + 5}-0`);
  await delivered(below);
  await passed(below);
  expect(findingLines()).toMatchObject([{ level: 'error', kind: 'stream_regressed', offset: lost }]);
  expect(await Promise.all([old, ...kept, lost, below].map(deliveriesOf))).toEqual([1, 1, 1, 1, 1]);
  expect(await intentStatusOf(slot, old)).toBeUndefined();
  expect(await intentStatusOf(slot, kept[0]!)).toBe('accepted');
});

test('intent-9 only the stream that is configured is read', async () => {
  await start();
  await delivered(await publish());
  await stop();
  const before = slot.client.workflow.getHandle(bridgeWorkflowId(stream));
  stream = `${stream}-renamed`;
  await mayUse(slot.redis, 'notify-intent', stream);
  await start();
  await delivered(await publish());
  await eventually('the other reader to end', async () => {
    const { status } = await before.describe();
    return status.name === 'CANCELLED';
  });
});

test('I39 a check that fails is reported once and stops nothing', async () => {
  const allowed = Redis.prototype.eval;
  const isCheck = ([script]: unknown[]) => String(script).includes("'XINFO', 'STREAM'");
  const scripts = jest.spyOn(Redis.prototype, 'eval').mockImplementation(function (this: Redis, ...args) {
    return isCheck(args) ? Promise.reject(new Error('NOPERM')) : allowed.apply(this, args);
  });
  const checksSoFar = () => scripts.mock.calls.filter(isCheck).length;
  try {
    await start();
    await delivered(await publish());
    const checks = checksSoFar();
    await eventually('two more checks', async () => checksSoFar() > checks + 1);
    await delivered(await publish());
    const warnings = slot.logs.filter(({ msg }) => msg === 'stream not checked');
    expect(warnings).toMatchObject([{ level: 'warn', stream, reason: 'NOPERM' }]);
    expect(slot.logs.filter(({ msg }) => msg === 'stream reader stopped')).toEqual([]);
  } finally {
    scripts.mockRestore();
  }
});

/** With a key, Temporal keeps nothing readable of an intent but ids; operators read and steer as before. */
import { randomBytes } from 'node:crypto';
import { Client } from '@temporalio/client';
import { dataConverterWith } from '../../api/payload-codec.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, untilStarted, slotOfTests } from '../harness.ts';
import { keptByTemporal } from '../kept.ts';
import { GATEWAY } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { PUSH, replayRoute } from './rows.ts';

const key = { id: 'test', key: randomBytes(32) };
const NOTIFICATION_PAYLOAD_KEYS = `${key.id}:${key.key.toString('base64')}`;

const slot = slotOfTests();
const bench = cliOfTests(slot);
let reader: Client;
beforeAll(async () => {
  await slot.startService({
    NOTIFICATION_PAYLOAD_KEYS,
    NOTIFICATION_ROUTE_BACKOFF_MIN: '20ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '40ms',
  });
  const { connection, options } = slot.client;
  const dataConverter = dataConverterWith([key])!;
  reader = new Client({ connection, namespace: options.namespace, dataConverter });
});

test('I25 I40 an intent goes its way, fails and is replayed, and Temporal holds no word of it', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'secret-key-1');
  const route = reader.workflow.getHandle(routeWorkflowId(id, PUSH));
  await untilStarted(route);
  await expect(route.result()).rejects.toMatchObject({ cause: { type: 'RouteDeadLettered' } });
  await reader.workflow.getHandle(notificationWorkflowId(id)).result();

  for (const workflowId of [notificationWorkflowId(id), routeWorkflowId(id, PUSH)]) {
    const kept = await keptByTemporal(slot.client.workflow.getHandle(workflowId));
    // The failure's message, the payload, the summary, results.
    expect(kept).not.toMatch(/budget spent|WRONGTYPE|Andromeda|game_name|to 1 recipient|deadLettered/);
    expect(kept).toContain('Encoded failure');
  }
  const failure = await route.result().catch((error: unknown) => error);
  expect(failure).toMatchObject({ cause: { message: 'budget spent: gateway_stream_publish_failed' } });

  await slot.redis.del(GATEWAY);
  await replayRoute({ client: reader }, id, PUSH);
  await eventually('the push event', async () => (await slot.redis.xlen(GATEWAY)) === 1);
});

test('I40 the command line reads and steers with the same keys, and without them sees all else', async () => {
  const { cli } = bench;
  const withKeys = { changes: { NOTIFICATION_PAYLOAD_KEYS } };
  const readJson = async <T>(args: string[], more = {}) =>
    JSON.parse((await cli([...args, '--json'], more)).stdout) as T;
  const status = (more = {}) =>
    readJson<{ lastFailure?: string; progress?: { offset: string } }>(['bridge', 'status'], more);
  const id = await publishTurn(slot.redis, 'secret-key-2');
  await untilStarted(slot.client.workflow.getHandle(notificationWorkflowId(id)));
  const shown = await cli(['notifications', 'show', id, '--json'], withKeys);
  expect(shown).toMatchObject({ code: 0, stderr: '' });
  expect(await cli(['channels', 'pause', 'email', '--json'], withKeys)).toMatchObject({ code: 0 });

  // Heartbeats of the reader are sealed, too, and why it failed.
  await eventually('a heartbeat', async () => (await status(withKeys)).progress?.offset.includes('-'));
  expect(await bench.findings(withKeys.changes)).toMatchObject({ 'stream reader': { status: 'ok' } });
  await slot.redis.rename('notification:intents', 'aside');
  await slot.redis.set('notification:intents', 'not a stream');
  await eventually('the failure', async () => (await status(withKeys)).lastFailure?.includes('WRONGTYPE'));
  const withoutKeys = await status();
  expect(withoutKeys).toMatchObject({ attempt: expect.any(Number), lastFailure: 'Encoded failure' });
  expect(withoutKeys.progress).toBeUndefined();
});

/** With a key, Temporal keeps nothing readable of an intent but ids; operators read and steer as before. */
import { randomBytes } from 'node:crypto';
import { Client } from '@temporalio/client';
import { dataConverterWith } from '../../api/payload-codec.ts';
import { REPLAY_SIGNAL, notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { cliFor } from '../command-line.ts';
import { publishTurn } from './entries.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot, untilStarted } from '../harness.ts';

const GATEWAY = 'gateway:client-events';
const PUSH = 'push:user:user-1';
const key = { id: 'test', key: randomBytes(32) };
const NOTIFICATION_PAYLOAD_KEYS = `${key.id}:${key.key.toString('base64')}`;

let slot: Slot;
let reader: Client;
beforeAll(async () => {
  slot = await takeSlot();
  await slot.startService({
    NOTIFICATION_PAYLOAD_KEYS,
    NOTIFICATION_ROUTE_BACKOFF_MIN: '20ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '40ms',
  });
  const { connection, options } = slot.client;
  reader = new Client({
    connection,
    namespace: options.namespace,
    dataConverter: dataConverterWith([key])!,
  });
});
afterAll(() => slot.release());

/** Everything that the server keeps of a workflow, as text, with what is base64 decoded. */
async function keptOf(workflowId: string): Promise<string> {
  const handle = slot.client.workflow.getHandle(workflowId);
  const kept = JSON.stringify([await handle.fetchHistory(), (await handle.describe()).raw]);
  const decoded = [...kept.matchAll(/"data":"([^"]*)"/g)].map(([, data]) =>
    Buffer.from(data!, 'base64').toString('latin1'),
  );
  return [kept, ...decoded].join('\n');
}

test('I25 I40 an intent goes its way, fails and is replayed, and Temporal holds no word of it', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'secret-key-1');
  const route = reader.workflow.getHandle(routeWorkflowId(id, PUSH));
  await untilStarted(route);
  await expect(route.result()).rejects.toMatchObject({ cause: { type: 'RouteDeadLettered' } });
  await reader.workflow.getHandle(notificationWorkflowId(id)).result();

  for (const workflowId of [notificationWorkflowId(id), routeWorkflowId(id, PUSH)]) {
    const kept = await keptOf(workflowId);
    // The failure's message, the payload, the summary, results.
    expect(kept).not.toMatch(/budget spent|WRONGTYPE|Andromeda|game_name|to 1 recipient|deadLettered/);
    expect(kept).toContain('Encoded failure');
  }
  const failure = await route.result().catch((error: unknown) => error);
  expect(failure).toMatchObject({ cause: { message: 'budget spent: gateway_stream_publish_failed' } });

  await slot.redis.del(GATEWAY);
  await reader.workflow.signalWithStart('notificationRoute', {
    workflowId: routeWorkflowId(id, PUSH),
    taskQueue: 'intent',
    args: [{ notificationId: id, routeRef: PUSH }],
    workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
    signal: REPLAY_SIGNAL,
    signalArgs: [{ requestedBy: 'test' }],
  });
  await eventually('the push event', async () => (await slot.redis.xlen(GATEWAY)) === 1);
});

test('I40 the progress of the reader, which its heartbeats tell, is read with the same keys', async () => {
  const bench = cliFor(slot);
  const changes = { NOTIFICATION_PAYLOAD_KEYS };
  await eventually('a heartbeat', async () => {
    const { stdout } = await bench.cli(['bridge', 'status', '--json'], { changes });
    return (JSON.parse(stdout) as { progress?: { offset: string } }).progress?.offset.includes('-');
  });
  const doctor = await bench.cli(['doctor', '--json'], { changes });
  const { findings } = JSON.parse(doctor.stdout) as { findings: { name: string; status: string }[] };
  expect(findings.find(({ name }) => name === 'stream reader')).toMatchObject({ status: 'ok' });
  bench.dispose();
});

test('I40 the command line reads with the same keys', async () => {
  const id = await publishTurn(slot.redis, 'secret-key-2');
  await untilStarted(slot.client.workflow.getHandle(notificationWorkflowId(id)));
  const { cli, dispose } = cliFor(slot);
  try {
    const shown = await cli(['notifications', 'show', id, '--json'], {
      changes: { NOTIFICATION_PAYLOAD_KEYS },
    });
    expect(shown).toMatchObject({ code: 0, stderr: '' });
    const paused = await cli(['channels', 'pause', 'email', '--json'], {
      changes: { NOTIFICATION_PAYLOAD_KEYS },
    });
    expect(paused.code).toBe(0);
  } finally {
    dispose();
  }
});

test('I40 why the reader failed is read with the same keys, and an operator without keys sees all else', async () => {
  await slot.redis.rename('notification:intents', 'aside');
  await slot.redis.set('notification:intents', 'not a stream');
  const { cli, dispose } = cliFor(slot);
  const statusWith = async (changes: Record<string, string>) => {
    const { stdout } = await cli(['bridge', 'status', '--json'], { changes });
    return JSON.parse(stdout) as { state: string; lastFailure?: string; progress?: object };
  };
  try {
    await eventually('the failure', async () =>
      (await statusWith({ NOTIFICATION_PAYLOAD_KEYS })).lastFailure?.includes('WRONGTYPE'),
    );
    const withoutKeys = await statusWith({});
    expect(withoutKeys).toMatchObject({ attempt: expect.any(Number), lastFailure: 'Encoded failure' });
    expect(withoutKeys.progress).toBeUndefined();
  } finally {
    dispose();
    await slot.redis.rename('aside', 'notification:intents');
  }
});

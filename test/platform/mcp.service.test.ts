/** `mcp`: an assistant's client on its standard input and output, with the service running. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import type { OperationView } from '../../client/operations.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { publishDead } from '../intent/rows.ts';
import { PROGRAM_ENV } from '../program-env.ts';
import { GATEWAY } from '../service-process.ts';

const clients: Client[] = [];
// Before the slot is given back.
afterAll(() => Promise.all(clients.map((client) => client.close())));
const slot = slotOfTests();
const cli = cliOfTests(slot);
beforeAll(() =>
  slot.startService({ NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms', NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms' }),
);

/** @returns a function that asks a separate server. */
async function connect(...args: string[]) {
  const client = new Client({ name: 'assistant', version: '1.0.0' });
  clients.push(client);
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: ['cli/main.ts', 'mcp', ...args],
      env: { ...PROGRAM_ENV, ...cli.env },
      stderr: 'ignore',
    }),
  );
  const call = async (name: string, given: Record<string, unknown> = {}) => {
    const { content, isError = false } = await client.callTool({ name, arguments: given });
    const [{ text }] = content as [{ text: string }];
    return { isError, text };
  };
  const ask = async <T>(...asked: Parameters<typeof call>): Promise<T> => {
    const { isError, text } = await call(...asked);
    if (isError) throw new Error(text);
    return JSON.parse(text) as T;
  };
  return { client, call, ask };
}

const heal = () => slot.redis.del(GATEWAY);

interface DryRun {
  token: string;
  reaches: unknown;
}

test('U10 an assistant looks, and has no tool that changes something unless the operator allows it', async () => {
  const id = await publishDead(slot, 'look/1');
  const { client, call, ask } = await connect();
  const { tools } = await client.listTools();
  expect(tools.map(({ name }) => name).sort()).toEqual([
    ...['actions_list', 'dead_letters_list', 'doctor', 'notifications_list', 'notifications_show'],
    ...['operations_show', 'top', 'views', 'why'],
  ]);
  expect(tools.filter(({ annotations }) => !annotations?.readOnlyHint)).toEqual([]);

  expect(await ask('dead_letters_list', { channel: 'push', since: '1h' })).toMatchObject({
    items: [{ notificationId: id, failure: 'gateway_stream_publish_failed' }],
  });
  expect(await ask('why', { user: 'user-1' })).toMatchObject({
    answers: expect.arrayContaining([expect.objectContaining({ cause: 'dead' })]) as unknown,
  });
  expect(await ask('notifications_show', { notificationId: id })).toMatchObject({ stage: 'accepted' });
  expect(await ask('top')).toMatchObject({ kinds: expect.any(Array) as unknown });
  expect(await ask('doctor')).toMatchObject({ isHealthy: expect.any(Boolean) as unknown });

  for (const [name, given, words] of [
    ['replay', { notificationId: id }, 'replay not found'],
    ['channels_pause', { channel: 'email' }, 'channels_pause not found'],
    ['dead_letters_list', { chanel: 'push' }, 'chanel'],
    ['dead_letters_list', { type: 'game.turn.redy' }, 'did you mean game.turn.ready?'],
    ['notifications_show', { notificationId: '1-1' }, '1-1'],
  ] as const) {
    const isError = true;
    expect([name, await call(name, given)]).toEqual([
      name,
      { isError, text: expect.stringContaining(words) as string },
    ]);
  }
  expect((await operatorOf(slot).actions.list()).items).toEqual([]);
  await heal();
});

test('U10 an answer has at most 32 KB: a longer one is refused', async () => {
  await slot.db.query(
    `INSERT INTO notification.operator_actions (action, requested_by, detail)
     SELECT 'note', 'nina', repeat('x', 1000) FROM generate_series(1, 100)`,
  );
  const { call } = await connect();
  expect(await call('actions_list', { limit: 100 })).toEqual({
    isError: true,
    text: 'the answer is too long: narrow the question down',
  });
  expect(await call('actions_list', { limit: 20 })).toMatchObject({ isError: false });
});

test('U10 a change shows what it would reach, reaches nothing newer, and is made once, by the person', async () => {
  const { notifications } = operatorOf(slot);
  const totalsOf = async (id: string) => (await notifications.show(id)).totals;
  const first = await publishDead(slot, 'change/1', ['user-2']);
  const { call, ask } = await connect('--allow-changes', '--requested-by', 'alice');
  const dryRun = await ask<DryRun>('replay', { type: 'game.turn.ready', since: '1h' });
  expect(dryRun.reaches).toMatchObject({ groups: [{ channel: 'push' }] });
  const second = await publishDead(slot, 'change/2', ['user-3']);
  await heal();

  for (const given of [{ token: 'another' }, { token: dryRun.token, channel: 'push' }, {}])
    expect(await call('replay', given)).toMatchObject({ isError: true });
  expect(await call('notifications_cancel', { token: dryRun.token })).toMatchObject({ isError: true });

  const { operationId } = await ask<OperationView>('replay', { token: dryRun.token, reason: 'INC-42' });
  expect(await call('replay', { token: dryRun.token })).toMatchObject({ isError: true });
  const view = await eventually('the replay to end', async () => {
    const now = await ask<OperationView>('operations_show', { operation: operationId });
    return now.status === 'done' && now;
  });
  expect(view).toMatchObject({ requestedBy: 'alice', reason: 'INC-42' });
  await eventually('the first to be published', async () => !('dead_letter' in (await totalsOf(first))));
  expect(await totalsOf(second)).toMatchObject({ dead_letter: 1 });

  const hold = await ask<DryRun>('producers_pause', { producer: 'game_master' });
  expect(hold.reaches).toMatchObject({ producer: 'game_master', status: 'open' });
  expect(await ask('producers_pause', { token: hold.token, reason: 'INC-42' })).toMatchObject({
    status: 'paused',
  });
  const held = await publishTurn(slot.redis, 'change/3', ['user-4']);
  await eventually('its routes to wait', async () => (await notifications.show(held)).routes.length > 0);
  const cancel = await ask<DryRun>('notifications_cancel', { notificationId: held });
  expect(cancel.reaches).toMatchObject({ wouldCancel: 1, groups: [{ producer: 'game_master' }] });
  // As if it had been accepted since.
  await slot.db.query('UPDATE notification.records SET accepted_at = now() WHERE notification_id = $1', [
    held,
  ]);
  await ask('notifications_cancel', { token: cancel.token });
  await eventually('its routes to be skipped', async () => (await totalsOf(held))['skipped'] === 2);
  const again = await ask<DryRun>('producers_resume', { producer: 'game_master' });
  await ask('producers_resume', { token: again.token });

  const { items } = await ask<{ items: { action: string; requestedBy: string }[] }>('actions_list', {
    limit: 5,
  });
  expect(items.filter(({ requestedBy }) => requestedBy === 'alice').map(({ action }) => action)).toEqual([
    ...['producers resume', 'notifications cancel', 'producers pause', 'replay'],
  ]);
});

test('U10 a request without end ends the server', async () => {
  const { code, stderr } = await cli.cli(['mcp'], { input: 'x'.repeat((1 << 20) + 1) });
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('maximum size') as unknown });
});

/** Subscriptions and tokens as operators see and steer them: the command line against a running service. */
import { readFileSync } from 'node:fs';
import type { AgentView, SubscriptionView } from '../../client/subscription/subscriptions.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually } from '../harness.ts';
import { newDevice } from './router-agent.ts';
import { QUICK, agentOfTests } from './agent.ts';

jest.setTimeout(240_000);
const RUNBOOK = readFileSync(new URL('../../docs/operate/runbook.md', import.meta.url), 'utf8');

const agent = agentOfTests();
const operator = cliOfTests(() => agent.slot);
beforeAll(async () => {
  await agent.start();
  operator.env['NOTIFICATION_SUBSCRIPTION_KEYS'] = QUICK['NOTIFICATION_SUBSCRIPTION_KEYS']!;
});

/** With --json before everything else: what follows a -- is no option. */
async function json<T>(args: string[], input = ''): Promise<{ code: number | null; value: T }> {
  const { code, stdout } = await operator.cli(['--json', ...args], { input });
  return { code, value: JSON.parse(stdout) as T };
}
const codeOf = async (args: string[]) => (await operator.cli(args)).code;
const show = async (connId: string) =>
  (await json<SubscriptionView>(['subscriptions', 'show', '--', connId])).value;
async function list(...options: string[]): Promise<SubscriptionView[]> {
  const { code, value } = await json<{ items: SubscriptionView[] }>(['subscriptions', 'list', ...options]);
  expect(code).toBe(0);
  return value.items;
}
const idsOf = (items: SubscriptionView[]) => items.map(({ connId }) => connId).sort();

/** Registers and verifies a token of a new device, whose code no other test has had pushed. */
async function activate(...options: string[]): Promise<void> {
  const device = newDevice();
  const text = `${device.provider}:${device.token}`;
  const status = (value: string) => ({ code: 0, value: { status: value } });
  expect(await json(['tokens', 'register', '-', ...options], text)).toEqual(status('REGISTERED'));
  const { nonce, code } = await agent.verification(device);
  // An equals sign, for what is base64url may begin with a dash.
  const verified = await json(['tokens', 'verify', '-', `--nonce=${nonce}`, `--code=${code}`], text);
  expect(verified).toEqual(status('ACTIVE'));
}

test('N15 N16 a token is registered and verified, queues are imported, turned off and deleted by the command line', async () => {
  await activate();
  expect(await json(['tokens', 'check'])).toEqual({ code: 0, value: { status: 'ACTIVE' } });

  const server = agent.routers.smp[0]!.address;
  const queues = await makeQueues(Array.from({ length: 3 }, () => ({ userId: 7, server })));
  const imported = await json<{ imported: { connId: string }[] }>(
    ['subscriptions', 'import'],
    JSON.stringify(queues),
  );
  expect(imported.code).toBe(0);
  const connIds = imported.value.imported.map(({ connId }) => connId);
  expect(new Set(connIds).size).toBe(3);
  await agent.active(connIds);
  const made = await list();
  for (const connId of connIds) {
    expect(made).toContainEqual(
      expect.objectContaining({
        connId,
        userId: 7,
        wantsNotifications: true,
        hasCredentials: true,
        status: expect.stringMatching(/^CREATED /) as string,
        action: 'check',
        link: expect.stringContaining('http://ui.test') as string,
      }),
    );
  }

  const [off, gone, kept] = connIds as [string, string, string];
  expect(await json(['subscriptions', 'toggle', '--off', '--', off, 'unknown'])).toMatchObject({
    code: 3,
    value: { changed: 1, unknown: ['unknown'] },
  });
  expect(await codeOf(['subscriptions', 'delete', '--', gone])).toBe(2);
  expect(await json(['subscriptions', 'delete', '--yes', '--', gone])).toMatchObject({
    code: 0,
    value: { deleted: 1 },
  });
  await eventually('the record of what was turned off to go', async () => {
    const { wantsNotifications, status } = await show(off);
    return !wantsNotifications && status === undefined;
  });
  expect(idsOf(await list('--user', '7'))).toEqual([off, kept].sort());
  expect(idsOf(await list('--status', 'created'))).toEqual([kept]);

  // Without `live` when the supervisor did not answer soon.
  const status = await eventually('the state of the supervisor', async () => {
    const found = await json<AgentView>(['subscriptions', 'status']);
    return found.value.live && found;
  });
  expect(status).toMatchObject({
    code: 0,
    value: {
      agentId: 'default',
      token: { status: 'ACTIVE', mode: 'INSTANT' },
      connections: { CREATED: 1, none: 1 },
      givenUp: 0,
      live: { isOpen: true },
    },
  });

  expect(await codeOf(['tokens', 'delete'])).toBe(2);
  expect(await codeOf(['tokens', 'delete', '--yes'])).toBe(0);
  const without = await json<AgentView>(['subscriptions', 'status']);
  expect(without.value.token).toBeUndefined();
});

test('subscription-B6 what was given up is brought back by the commands of the runbook, one, many or all', async () => {
  await activate('--mode', 'INSTANT');
  const connIds = await agent.createActive(3, agent.routers.smp[0]!.address, 8);
  const [one, off, other] = connIds as [string, string, string];
  await agent.rows(
    `UPDATE subscriptions.ntf_subscriptions
        SET ntf_action = NULL, smp_action = NULL, action_ts = NULL, generation = generation + 1,
            updated_at = clock_timestamp()
      WHERE conn_id = ANY($1::text[])`,
    [connIds],
  );
  const givenUp = async () =>
    (await json<{ items: unknown[] }>(runbook('list --given-up'))).value.items.length;
  expect(await givenUp()).toBe(3);
  expect((await operator.cli(runbook('show AbCdEfGhIjKlMnOp', one))).stderr).toMatch(/subscriptions retry/);
  expect(await json(runbook('retry AbCdEfGhIjKlMnOp', one))).toEqual({
    code: 0,
    value: { retried: [one] },
  });
  await agent.active([one]);
  expect(await givenUp()).toBe(2);

  // One that was switched off, and whose end was refused, is ended.
  await agent.rows('UPDATE subscriptions.connections SET enable_ntfs = false WHERE conn_id = $1', [off]);
  expect(await codeOf(['subscriptions', 'retry', '--all', one])).toBe(2);
  expect(await codeOf(['subscriptions', 'retry'])).toBe(2);
  expect(await json(runbook('retry --all'))).toEqual({ code: 0, value: { retried: 'all' } });
  await agent.active([one, other]);
  await eventually('the other one to be ended', async () => (await show(off)).status === undefined);
  expect(await givenUp()).toBe(0);

  // A queue of another application, from standard input.
  const wrong = await operator.cli(['subscriptions', 'import'], {
    input: '[{"recipientPrivateKey": "secret"}]',
  });
  expect(wrong).toMatchObject({ code: 1, stdout: '' });
  expect(wrong.stderr).toMatch(/queue 1: recipientPrivateKey: must be 32 bytes/);
  expect(wrong.stderr).not.toContain('secret');
  expect((await operator.cli(['subscriptions', 'import'], { input: '"secret' })).stderr).not.toContain(
    'secret',
  );
  const { value } = await json<{ items: object[] }>(['subscriptions', 'statistics', '--user', '8']);
  expect(value.items.length).toBeGreaterThan(0);
  expect(await codeOf(['tokens', 'delete', '--yes'])).toBe(0);
});

/** A command of the runbook, which must have it to the letter; an example's id is replaced. */
function runbook(command: string, connId?: string): string[] {
  expect(RUNBOOK).toContain(`galaxy-notify subscriptions ${command}\n`);
  const words = command.split(' ');
  // What follows a -- is no option.
  return ['subscriptions', ...(connId === undefined ? words : [words[0]!, '--', connId])];
}

test('N15 what is wrong or unknown is said in one line', async () => {
  const { cli } = operator;
  const wrong: [string[], number, RegExp][] = [
    [['tokens', 'register', '-'], 2, /AD, AP, AT or AN/],
    [['tokens', 'check'], 1, /^error: /],
    [['subscriptions', 'show', 'unknown'], 3, /no connection unknown/],
    [['subscriptions', 'retry', 'known', 'x'.repeat(65)], 1, /^error: connection ids must be 1 to 64 of/],
    [['subscriptions', 'toggle', 'nobody'], 2, /--on or --off/],
  ];
  for (const [args, code, text] of wrong) {
    const result = await cli(args);
    expect([args, result.code, result.stderr]).toEqual([args, code, expect.stringMatching(text)]);
  }
});

/** Subscriptions and tokens as operators see and steer them: the command line against a running service. */
import type { AgentView, SubscriptionView } from '../../client/subscription/subscriptions.ts';
import { cliFor } from '../cli-process.ts';
import { eventually } from '../harness.ts';
import { newDevice } from './router-agent.ts';
import { QUICK } from './agent.ts';
import type { TokenAgent } from './token-agent.ts';
import { takeTokenAgent } from './token-agent.ts';

const LIMIT_MS = 240_000;

let agent: TokenAgent;
let operator: ReturnType<typeof cliFor>;
const device = newDevice();
const deviceText = `${device.provider}:${device.token}`;

beforeAll(async () => {
  agent = await takeTokenAgent();
  await agent.startWith();
  operator = cliFor(agent.slot);
  Object.assign(operator.env, {
    NOTIFICATION_SUBSCRIPTION_KEYS: QUICK['NOTIFICATION_SUBSCRIPTION_KEYS']!,
  });
}, LIMIT_MS);
afterAll(async () => {
  operator.dispose();
  await agent.release();
});

const serverOf = ({ host, port, keyHash }: TokenAgent['routers']['smp'][number]['address']) =>
  `${host}:${port}#${keyHash}`;

/** With --json before everything else: what follows a -- is no option. */
async function json<T>(args: string[]): Promise<{ code: number | null; value: T }> {
  const { code, stdout } = await operator.cli(['--json', ...args]);
  return { code, value: JSON.parse(stdout) as T };
}

test(
  'N15 N16 a token is registered and verified, connections are made, turned off and deleted by the command line',
  async () => {
    expect(await json(['tokens', 'register', deviceText])).toEqual({
      code: 0,
      value: { status: 'REGISTERED' },
    });
    const { nonce, code } = await agent.verification(device);
    // An equals sign, for what is base64url may begin with a dash.
    expect(await json(['tokens', 'verify', deviceText, `--nonce=${nonce}`, `--code=${code}`])).toEqual({
      code: 0,
      value: { status: 'ACTIVE' },
    });
    expect(await json(['tokens', 'check'])).toEqual({ code: 0, value: { status: 'ACTIVE' } });

    const server = serverOf(agent.routers.smp[0]!.address);
    const made = await json<{ created: { connId: string }[]; subscriptions: SubscriptionView[] }>([
      ...['subscriptions', 'create', '--user', '7', '--count', '3', '--server', server],
      ...['--wait', '--timeout', '120s'],
    ]);
    expect(made.code).toBe(0);
    const connIds = made.value.created.map(({ connId }) => connId);
    expect(new Set(connIds).size).toBe(3);
    expect(made.value.subscriptions).toEqual(
      expect.arrayContaining(
        connIds.map((connId): unknown =>
          expect.objectContaining({
            connId,
            userId: 7,
            wantsNotifications: true,
            hasCredentials: true,
            status: expect.stringMatching(/^CREATED /) as string,
            action: 'check',
            link: expect.stringContaining('http://ui.test') as string,
          }),
        ),
      ),
    );

    const [off, gone, kept] = connIds as [string, string, string];
    expect(await json(['subscriptions', 'toggle', '--off', '--', off, 'unknown'])).toMatchObject({
      code: 3,
      value: { changed: 1, unknown: ['unknown'] },
    });
    expect((await operator.cli(['subscriptions', 'delete', '--', gone])).code).toBe(2);
    expect(await json(['subscriptions', 'delete', '--yes', '--', gone])).toMatchObject({
      code: 0,
      value: { deleted: 1 },
    });
    await eventually('the record of what was turned off to go', async () => {
      const { value } = await json<SubscriptionView>(['subscriptions', 'show', '--', off]);
      return !value.wantsNotifications && value.status === undefined;
    });
    const { value: list } = await json<{ items: SubscriptionView[] }>([
      'subscriptions',
      'list',
      '--user',
      '7',
    ]);
    expect(list.items.map(({ connId }) => connId).sort()).toEqual([off, kept].sort());
    const { value: created } = await json<{ items: SubscriptionView[] }>([
      ...['subscriptions', 'list', '--status', 'created'],
    ]);
    expect(created.items.map(({ connId }) => connId)).toEqual([kept]);

    const status = await json<AgentView>(['subscriptions', 'status']);
    expect(status).toMatchObject({
      code: 0,
      value: {
        agentId: 'default',
        token: { status: 'ACTIVE', mode: 'INSTANT' },
        connections: { CREATED: 1, none: 1 },
        givenUp: 0,
        live: { isPaused: false },
      },
    });
    expect((await json(['subscriptions', 'wake'])).code).toBe(0);
    const rotated = await json(['subscriptions', 'rotate', '--server', server, '--', kept]);
    expect(rotated).toMatchObject({ code: 0, value: { connId: kept } });

    expect((await operator.cli(['tokens', 'delete'])).code).toBe(2);
    expect((await operator.cli(['tokens', 'delete', '--yes'])).code).toBe(0);
    const without = await json<AgentView>(['subscriptions', 'status']);
    expect(without.value.token).toBeUndefined();
  },
  LIMIT_MS,
);

test(
  'N15 what is wrong or unknown is said in one line',
  async () => {
    const { cli } = operator;
    const wrong: [string[], number, RegExp][] = [
      [['tokens', 'register', 'a1b2'], 2, /AD, AP, AT or AN/],
      [['tokens', 'check'], 1, /^error: /],
      [['subscriptions', 'create', '--user', '1'], 2, /give --server/],
      [['subscriptions', 'create', '--user', '1', '--server', 'nowhere:1'], 2, /host:port#fingerprint/],
      [['subscriptions', 'show', 'nobody'], 3, /no connection nobody/],
      [['subscriptions', 'toggle', 'nobody'], 2, /--on or --off/],
    ];
    for (const [args, code, text] of wrong) {
      const result = await cli(args);
      expect([args, result.code, result.stderr]).toEqual([args, code, expect.stringMatching(text)]);
    }
  },
  LIMIT_MS,
);

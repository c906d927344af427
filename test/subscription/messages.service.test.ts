/** Scenarios 11 to 19 of the lifecycle: messages arrive for connections, and pushes for the device that is to know. */
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { WantedQueue } from '../../dev/stand-ins/subscription/queues.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import { messagesOf } from './message-agent.ts';
import { newDevice } from './router-agent.ts';
import type { Tokens } from './agent.ts';
import { agentOfTests } from './agent.ts';

const agent = agentOfTests({ smp: 2, ntf: 2 });
let service: Service;

beforeAll(async () => {
  service = await agent.start({}, [firstNtf().address]);
});
afterEach(() => Promise.all([...agent.routers.smp, ...agent.routers.ntf].map((router) => router.start())));

const firstNtf = () => agent.routers.ntf[0]!;
const secondNtf = () => agent.routers.ntf[1]!;
const connectionOn = (router: number): WantedQueue => ({
  userId: 1,
  server: agent.routers.smp[router]!.address,
});

/** Each test has its own agent, verified and with connections that are listened to. */
async function start(name: string, connections = [connectionOn(0)]) {
  const tokens: Tokens = agent.tokensOf(name);
  const messages = messagesOf(agent, name);
  await agent.activate(tokens, 'INSTANT');
  const connIds = await messages.create(connections);
  await messages.heard(connIds);
  return { tokens, messages, connIds, connId: connIds[0]!, device: tokens.device };
}

async function restart(servers: readonly RouterAddress[]): Promise<void> {
  await service.stop();
  service = await agent.start({}, servers);
}

test('N17 scenario 12 two agents, a push for each message each way, none extra', async () => {
  const [one, other] = await Promise.all([start('scenario-12a'), start('scenario-12b')]);
  for (let step = 1; step <= 4; step++) {
    for (const { messages, connId, device } of [one, other]) {
      await messages.pushed(await messages.send(connId), device);
      expect(messages.count(device)).toBe(step);
    }
  }
});

test('N9 N17 scenario 13 pushes with INSTANT, none with PERIODIC, none without a token', async () => {
  const { tokens, messages, connId, device } = await start('scenario-13');
  const witness = await start('scenario-13-witness');
  /** A connection that is listened to has heard of earlier messages. */
  const isQuiet = async (): Promise<void> => {
    const message = await messages.send(connId);
    await witness.messages.pushed(await witness.messages.send(witness.connId), witness.device);
    expect(await messages.isPushed(message, device)).toBe(false);
  };
  const isUnsubscribed = () =>
    eventually(
      'the end of the subscription',
      async () => (await messages.queuesOf(connId))[0]!.ntf_id === null,
    );

  await messages.pushed(await messages.send(connId), device);
  await tokens.register(device, 'PERIODIC');
  await isUnsubscribed();
  await isQuiet();
  await tokens.register(device, 'INSTANT');
  await messages.heard([connId]);
  await messages.pushed(await messages.send(connId), device);
  await tokens.delete();
  await isUnsubscribed();
  await isQuiet();
  await agent.activate(tokens, 'INSTANT');
  await messages.heard([connId]);
  await messages.pushed(await messages.send(connId), device);
});

test('N17 scenario 14 another device takes the token over, and gets all pushes from then on', async () => {
  const { tokens, messages, connId, device } = await start('scenario-14');
  await messages.pushed(await messages.send(connId), device);
  const other = newDevice();
  await restart([firstNtf().address]);
  await agent.activate(tokens, 'INSTANT', other);

  for (const count of [1, 2]) {
    await messages.pushed(await messages.send(connId), other);
    expect(messages.count(other)).toBe(count);
  }
  expect(messages.count(device)).toBe(1);
});

test('N17 scenario 15 the notification router restarts, and what arrived meanwhile is pushed', async () => {
  const { messages, connId, device } = await start('scenario-15');
  await firstNtf().stop();
  await firstNtf().start();
  await messages.heard([connId]);
  await messages.pushed(await messages.send(connId), device);

  await firstNtf().stop();
  // A notification into a connection that only seems to be there would be lost, as on any network.
  const [queue] = await messages.queuesOf(connId);
  await eventually(
    'the messaging router to notice',
    async () => !agent.routers.smp[0]!.subscribed().includes(queue!.ntf_id!),
  );
  const meanwhile = await messages.send(connId);
  expect(await messages.isPushed(meanwhile, device)).toBe(false);
  const stored = agent.routers.smp[0]!.queues().find(({ recipientId }) => recipientId === queue!.rcv_id);
  expect(stored!.messages.at(-1)!.messageId).toBe(meanwhile.messageId);
  await Promise.all(agent.routers.smp.map((router) => router.stop()));
  await Promise.all(agent.routers.smp.map((router) => router.start()));
  await firstNtf().start();
  await messages.pushed(meanwhile, device);
});

test('N17 scenario 16 50 connections over two messaging routers that restart', async () => {
  const connections = Array.from({ length: 50 }, (_, index) => connectionOn(index % 2));
  const { messages, connIds, device } = await start('scenario-16-50', connections);
  await Promise.all(agent.routers.smp.map((router) => router.stop()));
  await Promise.all(agent.routers.smp.map((router) => router.start()));
  await messages.heard(connIds);

  for (const connId of connIds) await messages.pushed(await messages.send(connId), device);
  const subscribed = firstNtf().subscriptions();
  const queues = await Promise.all(connIds.map((connId) => messages.queuesOf(connId)));
  for (const [queue] of queues) {
    expect(subscribed.filter(({ notifierId }) => notifierId === queue!.ntf_id).length).toBe(1);
  }
});

test.each([
  ['the same messaging router', 0],
  ['another messaging router', 1],
])('N17 scenario 17 a connection is replaced by one on %s', async (_where, router) => {
  const { messages, connId, device } = await start(`scenario-17-${router}`);
  await messages.pushed(await messages.send(connId), device);
  const [before] = await messages.queuesOf(connId);
  const [after] = await messages.create([connectionOn(router)]);
  await messages.delete([connId]);
  await messages.heard([after!]);

  await messages.pushed(await messages.send(after!), device);
  // It is the application's: only its notifications end.
  const former = () =>
    agent.routers.smp[0]!.queues().find(({ recipientId }) => recipientId === before!.rcv_id)!;
  await eventually(
    'the notifications of the former queue to end',
    async () => former().notifier === undefined,
  );
});

describe('another list of notification routers', () => {
  afterEach(() => restart([firstNtf().address]));

  test('N12 N17 scenario 18 a token that is taken over stays where it is, for old and new connections', async () => {
    const { tokens, messages, connId } = await start('scenario-18');
    await secondNtf().stop();
    await restart([secondNtf().address]);
    const device = newDevice();
    await agent.activate(tokens, 'INSTANT', device);
    const [added] = await messages.create([connectionOn(1)]);
    await messages.heard([connId, added!]);

    expect((await tokens.row())!.port).toBe(firstNtf().address.port);
    for (const one of [connId, added!]) await messages.pushed(await messages.send(one), device);
  });

  test('N12 N17 scenario 19 a token that is made again is on the new server, for old and new connections', async () => {
    const { tokens, messages, connId, device } = await start('scenario-19');
    await tokens.delete();
    await restart([secondNtf().address]);
    await agent.activate(tokens, 'INSTANT');
    await eventually('the old token to be forgotten', async () =>
      firstNtf()
        .tokens()
        .every((token) => token.device.token !== device.token),
    );
    await firstNtf().stop();
    const [added] = await messages.create([connectionOn(1)]);
    await messages.heard([connId, added!]);

    expect((await tokens.row())!.port).toBe(secondNtf().address.port);
    for (const one of [connId, added!]) await messages.pushed(await messages.send(one), device);
  });
});

/** Each version of a notification router with those of messaging routers that are tried with it. */
const VERSIONS: [ntf: number, smp: number[]][] = [
  [1, [6, 9]],
  [2, [6, 7, 8, 9]],
];

describe.each(VERSIONS)('a notification router of version %i', (ntfVersion, smpVersions) => {
  let ntf: NotificationRouterStandIn;
  const smp = new Map<number, MessagingRouterStandIn>();

  beforeAll(async () => {
    for (const version of smpVersions) smp.set(version, await startMessagingRouter({ version }));
    const pushUrl = agent.routers.sink.url;
    ntf = await startNotificationRouter({ version: ntfVersion, pushUrl });
    await restart([ntf.address]);
  });
  // Agents still have subscriptions there.
  afterAll(async () => {
    await restart([firstNtf().address]);
    await Promise.all([ntf, ...smp.values()].map((router) => router.stop()));
  });

  test.each(smpVersions)(
    `N9 N17 scenario 11: a push for a connection, and none when it is switched off; versions ${ntfVersion} and %i`,
    async (smpVersion) => {
      const agentId = `scenario-11-${ntfVersion}-${smpVersion}`;
      const messages = messagesOf(agent, agentId, { smp: [...smp.values()], ntf: [ntf] });
      const tokens = agent.tokensOf(agentId);
      const { device } = tokens;
      const connection = { userId: 1, server: smp.get(smpVersion)!.address };
      const [connId, other] = await messages.create([connection, connection]);
      await agent.activate(tokens, 'INSTANT');
      await messages.heard([connId!, other!]);
      await messages.pushed(await messages.send(connId!), device);

      await messages.toggle([connId!], false);
      await eventually('the notifier to go', async () => {
        const [queue] = await messages.queuesOf(connId!);
        const stored = smp
          .get(smpVersion)!
          .queues()
          .find(({ recipientId }) => recipientId === queue!.rcv_id);
        return stored && !stored.notifier;
      });
      const before = messages.count(device);
      const unheard = await messages.send(connId!);
      // What came before this one would have been pushed before it.
      await messages.pushed(await messages.send(other!), device);
      expect(await messages.isPushed(unheard, device)).toBe(false);
      expect(messages.count(device)).toBe(before + 1);
      const versions = new Set(smp.get(smpVersion)!.batches.map(({ version }) => version));
      expect(Math.max(...versions)).toBe(smpVersion);
    },
  );
});

/** Scenarios 11 to 19 of the lifecycle: messages arrive for connections, and pushes for the device that is to know. */
import { MalformedError } from '../../activities/subscription/router/blocks.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { loadSavedToken } from '../../activities/subscription/token-rows.ts';
import { parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { notifierSecretContext } from '../../api/subscription/rows.ts';
import { openItems, openMeta } from '../../dev/live-routers/pushes.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { RecordedDevicePush } from '../../dev/stand-ins/subscription/push-sink.ts';
import type { WantedQueue } from '../../dev/stand-ins/subscription/queues.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import type { QueueRow, Tokens } from './agent.ts';
import { KEY_BOX, agentOfTests } from './agent.ts';
import { newDevice } from './router-agent.ts';
import { pushesTo } from './routers.ts';

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

/** A message that has arrived for a connection. */
interface Message {
  connId: string;
  messageId: string;
  /** When the messaging router got it, epoch ms. */
  at: number;
}

/** @param routers all that the agent's queues may be on, and its token. */
function messagesOf(
  agentId: string,
  routers: { smp: MessagingRouterStandIn[]; ntf: NotificationRouterStandIn[] } = agent.routers,
) {
  const queues = () =>
    agent.rows<QueueRow>('SELECT * FROM subscriptions.rcv_queues WHERE agent_id = $1', [agentId]);

  /** The queue of a connection, its messaging router, and what that has of it. */
  async function queueOf(connId: string) {
    const row = (await queues()).find(({ conn_id }) => conn_id === connId);
    const router = routers.smp.find(({ address }) => address.port === row?.port);
    const stored = router?.queues().find(({ recipientId }) => recipientId === row?.rcv_id);
    return { notifierId: row?.ntf_id, router: router!, stored: stored! };
  }

  /**
   * Reads a push about messages as its device would: it names the newest message of each of at most six queues.
   *
   * @returns messages of known queues, newest first; none when the push is not for the agent's present token.
   */
  async function messagesIn({ data }: RecordedDevicePush): Promise<Message[]> {
    const token = await loadSavedToken(agent.slot.db, KEY_BOX, agentId);
    const secret = token?.dhSecret;
    const items = secret && unlessMalformed(() => openItems(data, secret));
    if (!items) return [];
    const rows = await queues();
    return items.flatMap((item) => {
      const { host, port } = parseBinaryAddress(item.router);
      const row = rows.find(
        (one) => one.ntf_id === item.notifierId && one.host === host && one.port === port,
      );
      if (!row) return [];
      const context = notifierSecretContext(agentId, item.notifierId);
      const meta = unlessMalformed(() => openMeta(item, KEY_BOX.open(row.rcv_ntf_dh_secret!, context)));
      return meta ? [{ connId: row.conn_id, messageId: meta.messageId, at: meta.at.getTime() }] : [];
    });
  }

  /** What a push to the device said of the message. The newest ones are the likely ones. */
  async function toldOf({ messageId }: Message, device: { token: string }): Promise<Message | undefined> {
    for (const push of pushesTo(agent.routers.sink, device.token, 'message').toReversed()) {
      const told = (await messagesIn(push)).find((one) => one.messageId === messageId);
      if (told) return told;
    }
    return undefined;
  }

  return {
    create: (connections: WantedQueue[]): Promise<string[]> => agent.create(connections, agentId),

    queueOf,

    /** A peer sends. */
    async send(connId: string): Promise<Message> {
      const { router, stored } = await queueOf(connId);
      const { messageId, at } = router.send(stored.senderId, `to ${connId}`);
      return { connId, messageId, at };
    },

    /** Waits until a connection has no subscription any more. */
    unsubscribed: (connId: string) =>
      eventually('the notifier to go', async () => !(await queueOf(connId)).stored.notifier),

    /** Waits until the notification router hears of messages to these. */
    heard: (connIds: readonly string[]) =>
      eventually('the notification router to listen to every queue', async () => {
        const active = routers.ntf
          .flatMap((router) => router.subscriptions())
          .filter(({ status, router, notifierId }) => {
            const listening = routers.smp.find(({ address }) => address.port === router.port);
            return status === 'ACTIVE' && listening?.subscribed().includes(notifierId);
          });
        const heard = new Set(active.map(({ notifierId }) => notifierId));
        const rows = (await queues()).filter(({ conn_id }) => connIds.includes(conn_id));
        return rows.length === connIds.length && rows.every(({ ntf_id }) => ntf_id && heard.has(ntf_id));
      }),

    /** Waits for the push that names this message, with its connection and time. */
    async pushed(message: Message, device: { token: string }): Promise<void> {
      const told = await eventually('the push of the message', () => toldOf(message, device));
      expect(told).toEqual({ ...message, at: toldTimeOf(message.at) });
    },

    /** How many pushes about messages a device has got. */
    count: (device: { token: string }): number =>
      pushesTo(agent.routers.sink, device.token, 'message').length,

    /** Whether a push ever named this message. */
    isPushed: async (message: Message, device: { token: string }): Promise<boolean> =>
      (await toldOf(message, device)) !== undefined,
  };
}

/** Routers tell time in seconds. */
const toldTimeOf = (at: number): number => Math.floor(at / 1_000) * 1_000;

function unlessMalformed<Value>(read: () => Value): Value | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}

/** Each test has its own agent, verified and with connections that are listened to. */
async function start(
  name: string,
  connections = [connectionOn(0)],
  routers?: Parameters<typeof messagesOf>[1],
) {
  const tokens: Tokens = agent.tokensOf(name);
  const messages = messagesOf(name, routers);
  await agent.activate(tokens, 'INSTANT');
  const connIds = await messages.create(connections);
  await messages.heard(connIds);
  return { tokens, messages, connIds, connId: connIds[0]!, device: tokens.device };
}

const restartAll = async (routers: readonly MessagingRouterStandIn[]) => {
  await Promise.all(routers.map((router) => router.stop()));
  await Promise.all(routers.map((router) => router.start()));
};

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

  await messages.pushed(await messages.send(connId), device);
  await tokens.register(device, 'PERIODIC');
  await messages.unsubscribed(connId);
  await isQuiet();
  await tokens.register(device, 'INSTANT');
  await messages.heard([connId]);
  await messages.pushed(await messages.send(connId), device);
  await tokens.delete();
  await messages.unsubscribed(connId);
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
  const { notifierId, router } = await messages.queueOf(connId);
  await eventually('the messaging router to notice', async () => !router.subscribed().includes(notifierId!));
  const meanwhile = await messages.send(connId);
  expect(await messages.isPushed(meanwhile, device)).toBe(false);
  expect((await messages.queueOf(connId)).stored.messages.at(-1)!.messageId).toBe(meanwhile.messageId);
  await restartAll(agent.routers.smp);
  await firstNtf().start();
  await messages.pushed(meanwhile, device);
});

test('N17 scenario 16 50 connections over two messaging routers that restart', async () => {
  const connections = Array.from({ length: 50 }, (_, index) => connectionOn(index % 2));
  const { messages, connIds, device } = await start('scenario-16-50', connections);
  await restartAll(agent.routers.smp);
  await messages.heard(connIds);

  for (const connId of connIds) await messages.pushed(await messages.send(connId), device);
  const subscribed = firstNtf().subscriptions();
  for (const { notifierId } of await Promise.all(connIds.map(messages.queueOf))) {
    expect(subscribed.filter((one) => one.notifierId === notifierId)).toHaveLength(1);
  }
});

test.each([
  ['the same messaging router', 0],
  ['another messaging router', 1],
])('N17 scenario 17 a connection is replaced by one on %s', async (_where, router) => {
  const agentId = `scenario-17-${router}`;
  const { messages, connId, device } = await start(agentId);
  await messages.pushed(await messages.send(connId), device);
  const { recipientId } = (await messages.queueOf(connId)).stored;
  const [after] = await messages.create([connectionOn(router)]);
  await agent.remove([connId], agentId);
  await messages.heard([after!]);

  await messages.pushed(await messages.send(after!), device);
  // It is the application's: only its notifications end.
  await eventually('the notifications of the former queue to end', async () => {
    const former = agent.routers.smp[0]!.queues().find((queue) => queue.recipientId === recipientId);
    return former && !former.notifier;
  });
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
      const connection = { userId: 1, server: smp.get(smpVersion)!.address };
      const routers = { smp: [...smp.values()], ntf: [ntf] };
      const { messages, connIds, device } = await start(agentId, [connection, connection], routers);
      const [connId, other] = connIds as [string, string];
      await messages.pushed(await messages.send(connId), device);

      await agent.toggle([connId], false, agentId);
      await messages.unsubscribed(connId);
      const before = messages.count(device);
      const unheard = await messages.send(connId);
      // What came before this one would have been pushed before it.
      await messages.pushed(await messages.send(other), device);
      expect(await messages.isPushed(unheard, device)).toBe(false);
      expect(messages.count(device)).toBe(before + 1);
      const versions = new Set(smp.get(smpVersion)!.batches.map(({ version }) => version));
      expect(Math.max(...versions)).toBe(smpVersion);
    },
  );
});

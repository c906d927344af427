/** Scenario 11 of the lifecycle, with routers of different versions. */
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import { messagesOf } from './message-agent.ts';
import { tokenAgentOfTests } from './token-agent.ts';

/** Each version of a notification router with those of messaging routers that are tried with it. */
const VERSIONS: [ntf: number, smp: number[]][] = [
  [1, [6, 9]],
  [2, [6, 7, 8, 9]],
];

/** A worker that was stopped with a task in its hand is waited for up to its heartbeat time-out. */
jest.setTimeout(120_000);

const agent = tokenAgentOfTests({ smp: 0, ntf: 0 });
let service: Service | undefined;
/** They stay until the end: agents of earlier tests still have subscriptions there. */
const routers: (MessagingRouterStandIn | NotificationRouterStandIn)[] = [];
afterAll(() => Promise.all(routers.map((router) => router.stop())));

describe.each(VERSIONS)('a notification router of version %i', (ntfVersion, smpVersions) => {
  let ntf: NotificationRouterStandIn;
  const smp = new Map<number, MessagingRouterStandIn>();

  beforeAll(async () => {
    for (const version of smpVersions) smp.set(version, await startMessagingRouter({ version }));
    const pushUrl = agent.routers.sink.url;
    ntf = await startNotificationRouter({ version: ntfVersion, pushUrl });
    routers.push(ntf, ...smp.values());
    await service?.stop();
    service = await agent.startWith([ntf.address]);
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

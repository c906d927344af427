/** Messages to connections of an agent, and the pushes that they lead to. */
import { parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { notifierSecretContext } from '../../api/subscription/rows.ts';
import { MalformedError } from '../../activities/subscription/router/blocks.ts';
import { loadSavedToken } from '../../activities/subscription/token-rows.ts';
import { openItems, openMeta } from '../../dev/live-routers/pushes.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { RecordedDevicePush } from '../../dev/stand-ins/subscription/push-sink.ts';
import type { WantedQueue } from '../../dev/stand-ins/subscription/queues.ts';
import { eventually } from '../eventually.ts';
import type { SubscriptionAgent } from './agent.ts';
import { AGENT, KEY_BOX } from './agent.ts';
import { pushesTo } from './routers.ts';

/** A message that has arrived for a connection. */
export interface Message {
  connId: string;
  messageId: string;
  /** When the messaging router got it, epoch ms. */
  at: number;
}

interface QueueRow {
  port: number;
  rcv_id: string;
  ntf_id: string | null;
}

/** @param routers all that the agent's queues may be on, and its token. */
export function messagesOf(
  agent: SubscriptionAgent,
  agentId = AGENT,
  routers: { smp: MessagingRouterStandIn[]; ntf: NotificationRouterStandIn[] } = agent.routers,
) {
  const { slot } = agent;

  async function queuesOf(connId: string): Promise<QueueRow[]> {
    const { rows } = await slot.db.query<QueueRow>(
      `SELECT port, rcv_id, ntf_id FROM subscriptions.rcv_queues
        WHERE agent_id = $1 AND conn_id = $2`,
      [agentId, connId],
    );
    return rows;
  }

  const routerOf = ({ port }: QueueRow) => routers.smp.find(({ address }) => address.port === port)!;

  /**
   * Reads a push about messages as its device would: it names the newest message of each of at most six queues.
   *
   * @returns messages of known queues, newest first; undefined when the push is not for the agent's present token.
   */
  async function messagesIn({ data }: RecordedDevicePush): Promise<Message[] | undefined> {
    const token = await loadSavedToken(slot.db, KEY_BOX, agentId);
    const secret = token?.dhSecret;
    const items = secret && unlessMalformed(() => openItems(data, secret));
    if (!items) return undefined;
    const rows = await agent.rows<QueueSecretRow>(LOAD_QUEUE_SECRETS, [
      agentId,
      items.map(({ notifierId }) => notifierId),
    ]);
    return items.flatMap((item) => {
      const { host, port } = parseBinaryAddress(item.router);
      const row = rows.find(
        (one) => one.ntf_id === item.notifierId && one.host === host && one.port === port,
      );
      if (!row) return [];
      const context = notifierSecretContext(agentId, item.notifierId);
      const meta = unlessMalformed(() => openMeta(item, KEY_BOX.open(row.rcv_ntf_dh_secret, context)));
      return meta ? [{ connId: row.conn_id, messageId: meta.messageId, at: meta.at.getTime() }] : [];
    });
  }

  return {
    create: (connections: WantedQueue[]): Promise<string[]> => agent.create(connections, agentId),

    toggle: (connIds: string[], enable: boolean) => agent.toggle(connIds, enable, agentId),

    delete: (connIds: string[]) => agent.remove(connIds, agentId),

    queuesOf,

    /** A peer sends. */
    async send(connId: string): Promise<Message> {
      const [queue] = await queuesOf(connId);
      const router = routerOf(queue!);
      const { senderId } = router.queues().find(({ recipientId }) => recipientId === queue!.rcv_id)!;
      const { messageId, at } = router.send(senderId, `to ${connId}`);
      return { connId, messageId, at };
    },

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
        const queues = await Promise.all(connIds.map(queuesOf));
        return queues.every(([queue]) => queue?.ntf_id && heard.has(queue.ntf_id));
      }),

    /** Waits for the push that names this message, with its connection and time. */
    async pushed(message: Message, device: { token: string }): Promise<void> {
      const named = await eventually('the push of the message', async () => {
        // The newest ones are the likely ones.
        for (const push of pushesTo(agent.routers.sink, device.token, 'message').toReversed()) {
          const named = (await messagesIn(push))?.find(({ messageId }) => messageId === message.messageId);
          if (named) return named;
        }
        return undefined;
      });
      expect(named).toEqual({ ...message, at: toldTimeOf(message.at) });
    },

    /** How many pushes about messages a device has got. */
    count: (device: { token: string }): number =>
      pushesTo(agent.routers.sink, device.token, 'message').length,

    /** Whether a push ever named this message. */
    async isPushed({ messageId }: Message, device: { token: string }): Promise<boolean> {
      const lists = await Promise.all(pushesTo(agent.routers.sink, device.token, 'message').map(messagesIn));
      return lists.some((list) => list?.some((message) => message.messageId === messageId));
    },
  };
}

interface QueueSecretRow {
  conn_id: string;
  host: string;
  port: number;
  ntf_id: string;
  rcv_ntf_dh_secret: Buffer;
}

const LOAD_QUEUE_SECRETS = `
  SELECT conn_id, host, port, ntf_id, rcv_ntf_dh_secret
    FROM subscriptions.rcv_queues
   WHERE agent_id = $1 AND ntf_id = ANY ($2::text[])`;

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

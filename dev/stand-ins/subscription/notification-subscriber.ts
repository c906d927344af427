/**
 * The side of a notification router that faces messaging routers: one session with each, in which it subscribes to
 * notifiers and hears of messages. A session that breaks is opened again, and subscribes to all notifiers again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createRouterConnections, endpointOf } from '../../../activities/subscription/router/connection.ts';
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import { signCommand } from '../../../activities/subscription/router/signing.ts';
import type { SentCommand, SessionEvent } from '../../../api/subscription/router-wire.ts';
import {
  BLOCK_BYTES,
  OLDEST_VERSION,
  SESSION_PATH,
  answerLineSchema,
  commandsPath,
  packBlocks,
  sessionEventSchema,
  smpAnswerSchema,
} from '../../../api/subscription/router-wire.ts';

/** A notifier to subscribe to; ids and key are base64url. */
export interface Notifier {
  notifierId: string;
  notifierPrivateKey: string;
}

export interface SubscriberEvents {
  /** Those that the subscriber is to subscribe to at a router, asked each time that a session opens. */
  notifiersAt(router: RouterAddress): Notifier[];
  /** NSUB is on its way. */
  pending(router: RouterAddress, notifierIds: string[]): void;
  /** Undefined: NSUB was accepted; else what the router said instead. */
  subscribed(router: RouterAddress, notifierId: string, error: string | undefined): void;
  /** END, DELD and NMSG. */
  event(router: RouterAddress, event: Exclude<SessionEvent, { event: 'SESSION' | 'MSG' }>): void;
  /** The session is over. */
  disconnected(router: RouterAddress): void;
}

export interface Subscriber {
  /**
   * Subscribes to what `notifiersAt` gives for a router and is not subscribed to yet; opens a session if none is
   * open.
   */
  subscribe(router: RouterAddress, notifiers: Notifier[]): void;
  close(): Promise<void>;
}

const ENDLESS_MS = 2 ** 31 - 1;
const COMMAND_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 5_000;
const SHORTEST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const RESUBSCRIBE_PAUSE_MS = 200;

export function createSubscriber(events: SubscriberEvents): Subscriber {
  const connections = createRouterConnections({ connectTimeoutMs: CONNECT_TIMEOUT_MS });
  const closing = new AbortController();
  /** Open sessions by endpoint; undefined while one is being opened. */
  const sessions = new Map<string, string | undefined>();
  const loops: Promise<void>[] = [];

  async function keepSession(router: RouterAddress): Promise<void> {
    let pauseMs = SHORTEST_PAUSE_MS;
    while (!closing.signal.aborted) {
      await connections.exchange('subscriber', router, {
        method: 'GET',
        path: SESSION_PATH,
        timeoutMs: ENDLESS_MS,
        maxBytes: Number.POSITIVE_INFINITY,
        onLine: (line) => {
          const event = sessionEventSchema.parse(JSON.parse(line));
          if (event.event === 'SESSION') {
            pauseMs = SHORTEST_PAUSE_MS;
            sessions.set(endpointOf(router), event.session);
            void nsub(router, event.session, events.notifiersAt(router));
          } else if (event.event !== 'MSG') events.event(router, event);
        },
      });
      const wasOpen = sessions.get(endpointOf(router)) !== undefined;
      sessions.set(endpointOf(router), undefined);
      if (wasOpen) events.disconnected(router);
      await sleep(pauseMs, undefined, { signal: closing.signal }).catch(() => undefined);
      pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
    }
  }

  async function nsub(router: RouterAddress, session: string, notifiers: Notifier[]): Promise<void> {
    if (notifiers.length === 0) return;
    const commands = notifiers.map(({ notifierId, notifierPrivateKey }, index): SentCommand => {
      const content = { id: String(index), entity: notifierId, command: { op: 'NSUB' as const } };
      const key = Buffer.from(notifierPrivateKey, 'base64url');
      return { ...content, signature: signCommand({ router: router.keyHash, ...content }, key) };
    });
    events.pending(
      router,
      notifiers.map(({ notifierId }) => notifierId),
    );
    const { blocks } = packBlocks(commands, { blockBytes: BLOCK_BYTES.smp });
    const unanswered = new Set(notifiers.map(({ notifierId }) => notifierId));
    await connections.exchange('subscriber', router, {
      method: 'POST',
      path: commandsPath('smp'),
      body: JSON.stringify({ version: OLDEST_VERSION.smp, session, blocks }),
      timeoutMs: COMMAND_TIMEOUT_MS,
      maxBytes: Number.POSITIVE_INFINITY,
      onLine: (line) => {
        const { id, answer } = answerLineSchema.parse(JSON.parse(line));
        const parsed = smpAnswerSchema.parse(answer);
        const error = parsed.op === 'ERR' ? parsed.error : undefined;
        const said = error && [error.code, ...(error.detail === undefined ? [] : [error.detail])].join(' ');
        const notifierId = commands[Number(id)]!.entity!;
        unanswered.delete(notifierId);
        events.subscribed(router, notifierId, said);
      },
    });
    if (unanswered.size === 0) return;
    // The end of the session makes everything start again; within it, what has no answer is asked for again.
    await sleep(RESUBSCRIBE_PAUSE_MS, undefined, { signal: closing.signal }).catch(() => undefined);
    if (closing.signal.aborted || sessions.get(endpointOf(router)) !== session) return;
    const wanted = events.notifiersAt(router).filter(({ notifierId }) => unanswered.has(notifierId));
    await nsub(router, session, wanted);
  }

  return {
    subscribe(router, notifiers) {
      const endpoint = endpointOf(router);
      const session = sessions.get(endpoint);
      if (session !== undefined) void nsub(router, session, notifiers);
      else if (!sessions.has(endpoint)) {
        sessions.set(endpoint, undefined);
        loops.push(keepSession(router));
      }
    },
    async close() {
      closing.abort();
      await connections.close();
      await Promise.all(loops);
    },
  };
}

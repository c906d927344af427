/**
 * The side of a notification router that faces messaging routers: one session with each, in which it subscribes to
 * notifiers and hears of messages. A session that breaks is opened again, and subscribes to all notifiers again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { endpointOf } from '../../../api/subscription/router-address.ts';
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import type { SessionEvent } from './protocol.ts';
import type { Notifier, SubscriberSession, SubscriberSessions } from './transport.ts';

export interface SubscriberEvents {
  /** Those that the subscriber is to subscribe to at a router, asked each time that a session opens. */
  notifiersAt(router: RouterAddress): Notifier[];
  /** NSUB is on its way. */
  pending(router: RouterAddress, notifierIds: string[]): void;
  /** Undefined: NSUB was accepted; else what the router said instead. */
  subscribed(router: RouterAddress, notifierId: string, error: string | undefined): void;
  /** END, DELD and NMSG. */
  event(router: RouterAddress, event: Exclude<SessionEvent, { event: 'MSG' }>): void;
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

const SHORTEST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const RESUBSCRIBE_PAUSE_MS = 200;

/** @param via opens the sessions, and is closed with the subscriber. */
export function createSubscriber(via: SubscriberSessions, events: SubscriberEvents): Subscriber {
  const closing = new AbortController();
  /** Open sessions by endpoint; undefined while one is being opened. */
  const sessions = new Map<string, SubscriberSession | undefined>();
  /** What the next NSUB is for, so that those of a batch share blocks. */
  const gathered = new Map<SubscriberSession, Notifier[]>();
  const loops: Promise<void>[] = [];

  async function keepSession(router: RouterAddress): Promise<void> {
    let pauseMs = SHORTEST_PAUSE_MS;
    while (!closing.signal.aborted) {
      await via.run(router, {
        opened(session) {
          pauseMs = SHORTEST_PAUSE_MS;
          sessions.set(endpointOf(router), session);
          void nsub(router, session, events.notifiersAt(router));
        },
        event: (event) => events.event(router, event),
      });
      const wasOpen = sessions.get(endpointOf(router)) !== undefined;
      sessions.set(endpointOf(router), undefined);
      if (wasOpen) events.disconnected(router);
      await sleep(pauseMs, undefined, { signal: closing.signal }).catch(() => undefined);
      pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
    }
  }

  async function nsub(
    router: RouterAddress,
    session: SubscriberSession,
    notifiers: Notifier[],
  ): Promise<void> {
    if (notifiers.length === 0) return;
    const unanswered = new Set(notifiers.map(({ notifierId }) => notifierId));
    events.pending(router, [...unanswered]);
    await session.nsub(notifiers, (notifierId, error) => {
      unanswered.delete(notifierId);
      events.subscribed(router, notifierId, error);
    });
    if (unanswered.size === 0) return;
    // The end of the session makes everything start again; within it, what has no answer is asked for again.
    await sleep(RESUBSCRIBE_PAUSE_MS, undefined, { signal: closing.signal }).catch(() => undefined);
    if (closing.signal.aborted || sessions.get(endpointOf(router)) !== session) return;
    const wanted = events.notifiersAt(router).filter(({ notifierId }) => unanswered.has(notifierId));
    await nsub(router, session, wanted);
  }

  function gather(router: RouterAddress, session: SubscriberSession, notifiers: Notifier[]): void {
    const others = gathered.get(session);
    if (others) {
      others.push(...notifiers);
      return;
    }
    gathered.set(session, [...notifiers]);
    setImmediate(() => {
      const all = gathered.get(session)!;
      gathered.delete(session);
      void nsub(router, session, all);
    });
  }

  return {
    subscribe(router, notifiers) {
      const endpoint = endpointOf(router);
      const session = sessions.get(endpoint);
      if (session !== undefined) gather(router, session, notifiers);
      else if (!sessions.has(endpoint)) {
        sessions.set(endpoint, undefined);
        loops.push(keepSession(router));
      }
    },
    async close() {
      closing.abort();
      await via.close();
      await Promise.all(loops);
    },
  };
}

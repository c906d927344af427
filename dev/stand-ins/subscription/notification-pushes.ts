/** Pushes of a stand-in notification router to the push provider, and what its answers say about a token. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, request } from 'undici';
import type { TokenStatus } from '../../../activities/subscription/router/ports.ts';
import type { StoredSubscription, StoredToken } from './notification-state.ts';
import type { PushData } from './push-sink.ts';
import type { PushSeals } from './transport.ts';

export interface Pusher {
  pushVerification(token: StoredToken): void;
  /** The newest message of each of these subscriptions, as far as one push takes them. */
  pushMessages(token: StoredToken, subscriptions: StoredSubscription[]): void;
  pushCheck(token: StoredToken): void;
  close(): Promise<void>;
}

const MESSAGES_IN_ONE_PUSH = 6;
const ATTEMPTS = 3;
const PAUSE_MS = 50;
const TIMEOUT_MS = 5_000;

const INVALID_BY_REASON: Readonly<Record<string, TokenStatus>> = {
  BadDeviceToken: 'INVALID,BAD',
  TopicDisallowed: 'INVALID,TOPIC',
  ExpiredToken: 'INVALID,EXPIRED',
  Unregistered: 'INVALID,UNREGISTERED',
};

/** Where pushes go. */
export interface PushTarget {
  /** Of the push provider. */
  pushUrl: string;
  /** PEM of what an HTTPS provider is trusted by; it is spoken to over HTTP/2. */
  pushAuthority?: string;
}

/** @param options.changed called when the status of a token has changed. */
export function createPusher({
  pushUrl,
  pushAuthority,
  seals,
  changed,
}: PushTarget & {
  seals: PushSeals;
  changed: () => void;
}): Pusher {
  const connections = new Agent(
    pushAuthority === undefined ? {} : { allowH2: true, connect: { ca: pushAuthority } },
  );
  const underWay = new Set<Promise<void>>();
  const closing = new AbortController();

  function start(token: StoredToken, data: PushData): void {
    // This provider has no devices.
    if (token.device.provider === 'AN') return;
    const push = deliver(token, data)
      .catch(() => undefined)
      .finally(() => underWay.delete(push));
    underWay.add(push);
  }

  async function deliver(token: StoredToken, data: PushData): Promise<void> {
    const { device } = token;
    const isMessage = data.message !== undefined;
    const aps = isMessage
      ? { alert: { title: 'New message' }, 'mutable-content': 1 }
      : { 'content-available': 1 };
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const signal = AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), closing.signal]);
      const answer = await request(`${pushUrl}/3/device/${device.token}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'apns-push-type': isMessage ? 'alert' : 'background',
          'x-provider': device.provider,
        },
        body: JSON.stringify({ aps, notificationData: data }),
        dispatcher: connections,
        signal,
      }).catch(() => undefined);
      const body = (await answer?.body.json().catch(() => undefined)) as { reason?: string } | undefined;
      if (closing.signal.aborted) return;
      if (answer?.statusCode === 200) {
        if (data.verification !== undefined && token.status === 'REGISTERED') setStatus(token, 'CONFIRMED');
        return;
      }
      if (answer && answer.statusCode < 500 && answer.statusCode !== 429) {
        setStatus(token, INVALID_BY_REASON[body?.reason ?? ''] ?? 'INVALID');
        return;
      }
      await sleep(PAUSE_MS, undefined, { signal: closing.signal });
    }
  }

  function setStatus(token: StoredToken, status: TokenStatus): void {
    token.status = status;
    changed();
  }

  return {
    pushVerification(token) {
      const { nonce, content } = seals.code(token.code, token.secret);
      start(token, { verification: content, nonce });
    },
    pushMessages(token, subscriptions) {
      if (token.status !== 'ACTIVE') return;
      const newest = subscriptions
        .flatMap(({ router, last }) => (last ? [{ router, last }] : []))
        .sort((one, other) => other.last.at - one.last.at)
        .slice(0, MESSAGES_IN_ONE_PUSH);
      const { nonce, content } = seals.messages(newest, token.secret);
      start(token, { message: content, nonce });
    },
    pushCheck(token) {
      if (token.status === 'ACTIVE') start(token, { checkMessages: true });
    },
    async close() {
      closing.abort();
      await Promise.all(underWay);
      await connections.destroy();
    },
  };
}

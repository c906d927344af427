/** How a stand-in router speaks: JSON over HTTPS (https.ts), or the binary protocol (binary/). The rules are the same. */
import type { Boxed, RouterAddress } from '../../../activities/subscription/router/ports.ts';
import type { RouterProtocol, SessionEvent } from '../../../api/subscription/router-wire.ts';
import type { RouterStandIn } from './router-desk.ts';
import type { RouterRules } from './router-rules.ts';

export type Notification = Extract<SessionEvent, { event: 'NMSG' }>;

/** Opens a session with the subscriptions of its connection. @returns what ends it. */
export type OpenSession = (session: string, tell: (event: SessionEvent) => void) => () => void;

export interface RouterServerOptions {
  protocol: RouterProtocol;
  /** From `createCertificate` of the same transport. */
  certificate: unknown;
  /** 0: a free one. */
  port: number;
  /** Newest version it speaks; default: the newest of the transport. */
  version?: number | undefined;
  /** Oldest version it speaks; default: the oldest of the transport. */
  oldestVersion?: number | undefined;
  rules: RouterRules;
  /** Of a messaging router. */
  openSession?: OpenSession;
}

/** What messages and notifications look like on their way to the recipient. Secrets are base64url. */
export interface MessageSeals {
  meta(message: { messageId: string; at: number }, secret: string): Boxed;
  /** @param secret undefined when the queue was made without one. */
  body(
    message: { messageId: string; body: string; at: number; notify: boolean },
    secret: string | undefined,
  ): string;
}

/** What pushes look like. */
export interface PushSeals {
  code(code: string, secret: string): Boxed;
  messages(newest: readonly { router: RouterAddress; last: Notification }[], secret: string): Boxed;
}

/** A notifier to subscribe to; its id is base64url, its key in the spelling of the transport. */
export interface Notifier {
  notifierId: string;
  notifierPrivateKey: string;
}

/** An open session with a messaging router. */
export interface SubscriberSession {
  /**
   * Sends NSUB for each of them.
   *
   * @param answered undefined: NSUB was accepted; else what the router said instead. Not called for those without an
   *   answer.
   * @returns when the answers are there, or late.
   */
  nsub(
    notifiers: readonly Notifier[],
    answered: (notifierId: string, error: string | undefined) => void,
  ): Promise<void>;
}

/** Opens sessions with messaging routers. */
export interface SubscriberSessions {
  /** @returns when the session is over, or could not be opened. */
  run(
    router: RouterAddress,
    on: {
      opened(session: SubscriberSession): void;
      event(event: Exclude<SessionEvent, { event: 'SESSION' | 'MSG' }>): void;
    },
  ): Promise<void>;
  /** Ends all sessions. */
  close(): Promise<void>;
}

export interface RouterTransport {
  createCertificate(): Promise<unknown>;
  startServer(options: RouterServerOptions): Promise<RouterStandIn>;
  messageSeals: MessageSeals;
  pushSeals: PushSeals;
  createSubscriberSessions(): SubscriberSessions;
}

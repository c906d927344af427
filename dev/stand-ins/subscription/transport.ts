/** What the rules of stand-in routers and the protocol (binary/) know of each other. */
import type { RouterAddress } from '../../../activities/subscription/router/ports.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import type { Boxed, SessionEvent } from './protocol.ts';
import type { RouterRules } from './router-rules.ts';

export type Notification = Extract<SessionEvent, { event: 'NMSG' }>;

/** Opens a session with the subscriptions of its connection. @returns what ends it. */
export type OpenSession = (session: string, tell: (event: SessionEvent) => void) => () => void;

export interface RouterServerOptions {
  protocol: RouterProtocol;
  /** From `createBinaryCertificate`. */
  certificate: unknown;
  /** 0: a free one. */
  port: number;
  /** Newest version it speaks; default: the newest there is. */
  version?: number | undefined;
  /** Oldest version it speaks; default: the oldest there is. */
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

/** A notifier to subscribe to; its id is base64url, its key is DER in base64url. */
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
      event(event: Exclude<SessionEvent, { event: 'MSG' }>): void;
    },
  ): Promise<void>;
  /** Ends all sessions. */
  close(): Promise<void>;
}

/** What crosses the ports between the `subscription` feature and routers (routers.ts), and what is done about an error. */
import type { RouterAddress, TOKEN_STATUSES } from '../../../api/subscription/router-address.ts';

export type { RouterAddress };

/**
 * Why an item failed. `NTF` and `SMP` are answers of a router of that kind, `BROKER` is the way to it, `AGENT` and
 * `STORE` are this side.
 */
export interface RouterError {
  source: 'NTF' | 'SMP' | 'BROKER' | 'AGENT' | 'STORE';
  /** `AUTH`, `QUOTA`, `TIMEOUT`, `NETWORK`, `HOST`, `INTERNAL` …: see `RETRIED`. */
  code: string;
  /** For people: never a key, a token or a code. */
  detail?: string;
}

export type RouterResult<T> = { ok: true; value: T } | { ok: false; error: RouterError };

/** A raw Ed25519 or X25519 key, 32 bytes. Private ones exist in memory only; rows hold them encrypted. */
export type RawKey = Buffer;

export interface KeyPair {
  publicKey: RawKey;
  privateKey: RawKey;
}

/** Queue of a recipient on a messaging router, as the commands of its owner need it. */
export interface QueueRef {
  address: RouterAddress;
  userId: number;
  connId: string;
  /** base64url. */
  recipientId: string;
  recipientPrivateKey: RawKey;
}

/** Notifier credentials that are to be made for a queue; the router gets the public keys. */
export interface NotifierKeyRequest {
  queue: QueueRef;
  auth: KeyPair;
  dh: KeyPair;
}

export interface NotifierKeyAnswer {
  /** base64url of 16 to 24 bytes, assigned by the router. */
  notifierId: string;
  routerDhPublicKey: RawKey;
}

export type PushProvider = 'AD' | 'AP' | 'AT' | 'AN';

export interface DeviceToken {
  provider: PushProvider;
  /** Hex. */
  token: string;
}

/** A token that the router knows, with the key that signs for it. */
export interface TokenRef {
  address: RouterAddress;
  /** base64url of 24 bytes. */
  tokenId: string;
  privateKey: RawKey;
}

export type TokenStatus = (typeof TOKEN_STATUSES)[number];

export interface NewSubscriptionRequest {
  messagingRouter: RouterAddress;
  notifierId: string;
  notifierPrivateKey: RawKey;
}

/**
 * The errors that are tried again, for as long as it takes. Every other error is permanent: it ends the work on an item and is
 * reported, and only a new command starts it again. So are all answers of a router, INTERNAL and STORE among them: the
 * router was reached and has decided.
 */
const RETRIED: ReadonlySet<string> = new Set([
  // No answer in time.
  'BROKER TIMEOUT',
  // Connecting, TLS, a broken connection. A certificate with another fingerprint too: it may be exchanged again.
  'BROKER NETWORK',
  // None of the router's names leads anywhere at present.
  'BROKER HOST',
  // There is no version of the protocol that both sides speak, until one of them is upgraded.
  'BROKER VERSION',
  // This side is being shut down.
  'AGENT INACTIVE',
]);

/** Whether the same item may succeed by itself later. */
export const isRetried = ({ source, code }: RouterError): boolean => RETRIED.has(`${source} ${code}`);

/** The notification router does not know the token or the subscription, or not with this key. */
export function isUnknownToNotificationRouter({ source, code }: RouterError): boolean {
  return source === 'NTF' && code === 'AUTH';
}

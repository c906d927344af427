/**
 * The two ports through which the `subscription` feature talks to routers, and what crosses them; `binary/`
 * implements them in the routers' own protocols. Errors are data: each item of a batch has its own answer, and nothing here throws
 * for what a router says or fails to say.
 */
import type { RouterAddress } from '../../../api/subscription/router-address.ts';

export type { RouterAddress };

/**
 * Why an item failed. `NTF` and `SMP` are answers of a router of that kind, `BROKER` is the way to it, `AGENT` and
 * `STORE` are this side.
 */
export interface RouterError {
  source: 'NTF' | 'SMP' | 'BROKER' | 'AGENT' | 'STORE';
  /** `AUTH`, `QUOTA`, `TIMEOUT`, `NETWORK`, `HOST`, `INTERNAL` …: see `errors.ts` for all and their treatment. */
  code: string;
  /** For people: never a key, a token or a code. */
  detail?: string;
}

export type RouterResult<T> = { ok: true; value: T } | { ok: false; error: RouterError };

/** A raw Ed25519 or X25519 key, 32 bytes. Private ones exist in memory only; rows hold them encrypted. */
export type RawKey = Buffer;

/** An encrypted value as it travels. */
export interface Boxed {
  nonce: string;
  /** Ciphertext and tag. */
  content: string;
}

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

export interface NotifierKeyRequest {
  queue: QueueRef;
  notifierPublicKey: RawKey;
  recipientDhPublicKey: RawKey;
}

export interface NotifierKeyAnswer {
  /** base64url of 16 to 24 bytes, assigned by the router. */
  notifierId: string;
  routerDhPublicKey: RawKey;
}

export interface NewQueueRequest {
  address: RouterAddress;
  /** Whose session it is made in; default 0. */
  userId?: number;
  recipientPublicKey: RawKey;
  recipientPrivateKey: RawKey;
  /**
   * X25519, for messages. Without it the queue gets a key that nobody has: it can be
   * notified about, but not be read.
   */
  recipientDhPublicKey?: RawKey;
  /** From version 6 on: whether the session that makes the queue receives its messages; default false. */
  subscribe?: boolean;
  /** From version 9 on: whether a sender may secure the queue with a key of its own; default false. */
  senderMaySecure?: boolean;
}

export interface NewQueueAnswer {
  recipientId: string;
  senderId: string;
  /** X25519, for messages. */
  routerDhPublicKey: RawKey;
}

/** Results carry their item, because their order may differ from the order of the requests. */
export interface ItemResult<I, T> {
  item: I;
  result: RouterResult<T>;
}

/** A messaging router (SMP), toward which the agent acts as recipient. */
export interface MessagingRouter {
  /** PING, unsigned: whether the router at this address can be reached at all. */
  ping: (address: RouterAddress) => Promise<RouterResult<undefined>>;
  /** NEW. Not idempotent: each call makes a queue. */
  createQueue: (request: NewQueueRequest) => Promise<RouterResult<NewQueueAnswer>>;
  /** NKEY, batched by transport session. Not idempotent: each call issues a new notifier id. */
  createNotifierKeys: (
    requests: NotifierKeyRequest[],
  ) => Promise<ItemResult<NotifierKeyRequest, NotifierKeyAnswer>[]>;
  /** NDEL. Idempotent. */
  deleteNotifierKeys: (queues: QueueRef[]) => Promise<ItemResult<QueueRef, undefined>[]>;
  /** DEL. The notifier learns by DELD. AUTH on a repetition means that the queue is gone. */
  deleteQueues: (queues: QueueRef[]) => Promise<ItemResult<QueueRef, undefined>[]>;
  close: () => Promise<void>;
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

/** By what the pushes to a token are read. */
export interface PushSecret {
  /** The router that pushes. */
  address: RouterAddress;
  /** Agreed with it. */
  dhSecret: Buffer;
}

export type TokenStatus =
  | 'NEW'
  | 'REGISTERED'
  | 'INVALID'
  | 'INVALID,BAD'
  | 'INVALID,TOPIC'
  | 'INVALID,EXPIRED'
  | 'INVALID,UNREGISTERED'
  | 'CONFIRMED'
  | 'ACTIVE'
  | 'EXPIRED';

export interface NewSubscriptionRequest {
  messagingRouter: RouterAddress;
  notifierId: string;
  notifierPrivateKey: RawKey;
}

/**
 * What SCHK answers: NEW, PENDING, ACTIVE, INACTIVE, SERVICE, END, DELETED, AUTH or `ERR <text>`.
 */
export type RouterSubscriptionStatus = string;

/** A notification router (NTF). Answers of batches are positional; fewer answers than commands fail the rest. */
export interface NotificationRouter {
  /** PING, unsigned: whether the router at this address can be reached at all. */
  ping: (address: RouterAddress) => Promise<RouterResult<undefined>>;
  /** TNEW. Same token and keys: the same id and code again. */
  registerToken: (request: {
    address: RouterAddress;
    device: DeviceToken;
    auth: KeyPair;
    dhPublicKey: RawKey;
  }) => Promise<RouterResult<{ tokenId: string; routerDhPublicKey: RawKey }>>;
  /** TVFY. Repeatable with the same code. */
  verifyToken: (token: TokenRef, code: Buffer) => Promise<RouterResult<undefined>>;
  /** TCHK. */
  checkToken: (token: TokenRef) => Promise<RouterResult<TokenStatus>>;
  /** TRPL. */
  replaceToken: (token: TokenRef, device: DeviceToken) => Promise<RouterResult<undefined>>;
  /** TDEL. AUTH on a repetition means that it is gone. */
  deleteToken: (token: TokenRef) => Promise<RouterResult<undefined>>;
  /** TCRN, in minutes, 0 is off. */
  setCron: (token: TokenRef, minutes: number) => Promise<RouterResult<undefined>>;
  /** SNEW. Idempotent for the same token, queue and key. The value is the subscription id. */
  createSubscriptions: (
    token: TokenRef,
    requests: NewSubscriptionRequest[],
  ) => Promise<RouterResult<string>[]>;
  /** SCHK. */
  checkSubscriptions: (
    token: TokenRef,
    subscriptionIds: string[],
  ) => Promise<RouterResult<RouterSubscriptionStatus>[]>;
  /** SDEL, for legacy records only. */
  deleteSubscription: (token: TokenRef, subscriptionId: string) => Promise<RouterResult<undefined>>;
  /** @returns the code in a verification push, undefined when it was not encrypted for this token. */
  openVerification: (token: PushSecret, verification: Boxed) => Buffer | undefined;
  close: () => Promise<void>;
}

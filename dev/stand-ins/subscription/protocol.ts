/** What stand-in routers are asked, answer and tell, as their rules see it. Binary values are base64url. */
import type {
  DeviceToken,
  RouterAddress,
  TokenStatus,
} from '../../../activities/subscription/router/ports.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';

/** An encrypted value as it travels: ciphertext and tag. */
export interface Boxed {
  nonce: string;
  content: string;
}

/** A block, bytes. */
export const BLOCK_BYTES: Record<RouterProtocol, number> = { smp: 16_384, ntf: 512 };
/** From this version on, a router says why a token is invalid. */
export const NTF_VERSION_WITH_REASONS = 3;

export type SmpCommand =
  | { op: 'NEW'; recipientKey: string; notifier?: NotifierKeys | undefined }
  | ({ op: 'NKEY' } & NotifierKeys)
  | { op: 'NDEL' | 'DEL' | 'SUB' | 'GET' | 'NSUB' | 'PING' }
  | { op: 'ACK'; messageId: string }
  | { op: 'SEND'; notify: boolean; body: string };

interface NotifierKeys {
  notifierKey: string;
  recipientDhKey: string;
}

export type NtfCommand =
  | { op: 'TNEW'; device: DeviceToken; authKey: string; dhKey: string }
  | { op: 'TVFY'; code: string }
  | { op: 'TCHK' | 'TDEL' | 'SCHK' | 'SDEL' | 'PING' }
  | { op: 'TRPL'; device: DeviceToken }
  | { op: 'TCRN'; minutes: number }
  | {
      op: 'SNEW';
      tokenId: string;
      router: RouterAddress;
      notifierId: string;
      notifierPrivateKey: string;
    };

/** The error of a command: `AUTH`, `QUOTA`, `CMD` with what is wrong with it as detail … */
export interface CommandError {
  code: string;
  detail?: string | undefined;
}

interface NotifierAnswer {
  notifierId: string;
  routerDhKey: string;
}

type AnyAnswer = { op: 'OK' } | { op: 'PONG' } | { op: 'ERR'; error: CommandError };

export type SmpAnswer =
  | { op: 'IDS'; recipientId: string; senderId: string; notifier?: NotifierAnswer | undefined }
  | ({ op: 'NID' } & NotifierAnswer)
  | { op: 'MSG'; messageId: string; body: string; at: number }
  | AnyAnswer;

export type NtfAnswer =
  | { op: 'IDTKN'; tokenId: string; routerDhKey: string }
  | { op: 'TKN'; status: TokenStatus }
  | { op: 'IDSUB'; subscriptionId: string }
  | { op: 'SUB'; status: string }
  | AnyAnswer;

/** What a messaging router tells unasked in a session. */
export type SessionEvent =
  /** A message arrived; `meta` is encrypted for the recipient. */
  | { event: 'NMSG'; notifierId: string; at: number; meta: Boxed }
  /** Another session has subscribed. */
  | { event: 'END'; entity: string }
  /** The notifier, or its queue, has been deleted. */
  | { event: 'DELD'; entity: string }
  | { event: 'MSG'; recipientId: string; messageId: string; body: string; at: number };

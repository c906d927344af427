/** The two protocols, and what differs between their versions. */
import type { RouterProtocol } from '../../../../api/subscription/router-wire.ts';

export interface ProtocolFacts {
  /** Every block has this many bytes. */
  blockBytes: number;
  alpn: string;
  /** The versions spoken here. */
  oldest: number;
  newest: number;
  /** The newest that a router speaks with a client whose ALPN it does not know. */
  newestWithoutAlpn: number;
  /** From this one on, a session's id is signed but not sent. */
  impliedSession: number;
  /** From this one on, a block holds several transmissions. */
  batches: number;
  /** From this one on, a router's hello has a key of the session. */
  sessionKey: number;
}

export const PROTOCOLS: Record<RouterProtocol, ProtocolFacts> = {
  smp: {
    ...{ blockBytes: 16_384, alpn: 'smp/1', oldest: 4, newest: 9 },
    ...{ newestWithoutAlpn: 6, impliedSession: 7, batches: 4, sessionKey: 7 },
  },
  ntf: {
    ...{ blockBytes: 512, alpn: 'ntf/1', oldest: 1, newest: 2 },
    ...{ newestWithoutAlpn: 1, impliedSession: 2, batches: 2, sessionKey: 2 },
  },
};

/** From these on, NEW says with which password, whether it subscribes, and whether the sender may secure the queue. */
export const SMP_BASIC_AUTH = 5;
export const SMP_SUBSCRIBE_MODE = 6;
export const SMP_SENDER_SECURES = 9;

/** The first block of each side: what the router offers, and what the client takes of it. */
import type { RouterProtocol } from '../../../../api/subscription/router-address.ts';
import { Reader, large, short, word16 } from './bytes.ts';
import { hasSessionKey } from './transmissions.ts';

export interface RouterHello {
  oldest: number;
  newest: number;
  /** The client's Finished message of TLS. */
  sessionId: Buffer;
  /** DER, the online certificate first; a messaging router sends it. */
  chain: Buffer[];
  /** An X25519 key signed by the online certificate's key. */
  signedKey?: Buffer | undefined;
}

export interface ClientHello {
  version: number;
  /** Of the router that the client means. */
  keyHash: Buffer;
}

/** By ALPN; without it, both sides speak as before there was one. */
export const ALPN: Record<RouterProtocol, string> = { smp: 'smp/1', ntf: 'ntf/1' };
export const NEWEST_WITHOUT_ALPN: Record<RouterProtocol, number> = { smp: 6, ntf: 1 };

/** What the newest version offered does not know is left out. */
export function writeRouterHello(
  protocol: RouterProtocol,
  { oldest, newest, sessionId, chain, signedKey }: RouterHello,
): Buffer {
  const parts = [word16(oldest), word16(newest), short(sessionId)];
  if (signedKey && hasSessionKey({ protocol, version: newest })) {
    if (protocol === 'smp') parts.push(Buffer.from([chain.length]), ...chain.map(large));
    parts.push(large(signedKey));
  }
  return Buffer.concat(parts);
}

/** @throws MalformedError for an invalid hello. Bytes after it belong to later versions. */
export function readRouterHello(protocol: RouterProtocol, content: Buffer): RouterHello {
  const reader = new Reader(content);
  const oldest = reader.word16();
  const newest = reader.word16();
  const sessionId = reader.short();
  if (!hasSessionKey({ protocol, version: newest })) return { oldest, newest, sessionId, chain: [] };
  const chain = protocol === 'smp' ? Array.from({ length: reader.byte() }, () => reader.large()) : [];
  return { oldest, newest, sessionId, chain, signedKey: reader.large() };
}

export function writeClientHello({ version, keyHash }: ClientHello): Buffer {
  return Buffer.concat([word16(version), short(keyHash)]);
}

/** @throws MalformedError for an invalid hello. Bytes after it belong to later versions. */
export function readClientHello(content: Buffer): ClientHello {
  const reader = new Reader(content);
  return { version: reader.word16(), keyHash: reader.short() };
}

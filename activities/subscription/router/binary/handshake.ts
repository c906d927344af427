/** The first block of each side: which versions they speak, and that both are at the ends of the same TLS session. */
import type { X509Certificate } from 'node:crypto';
import { verify } from 'node:crypto';
import type { RawKey } from '../ports.ts';
import { rawPublicKeyIn } from '../signing.ts';
import { MalformedError, Reader, shortString, word16 } from './encoding.ts';
import type { ProtocolFacts } from './versions.ts';

/** No version of the protocol is spoken on both sides. */
export class VersionError extends Error {
  override name = 'VersionError';
}

export interface RouterHello {
  oldest: number;
  newest: number;
  sessionId: Buffer;
  /** What follows, of routers that have it. */
  extra: Reader;
}

/** @throws MalformedError */
export function readHello(content: Buffer): RouterHello {
  const reader = new Reader(content);
  const oldest = reader.word16('the oldest version');
  const newest = reader.word16('the newest version');
  if (oldest > newest) throw new MalformedError('the oldest version is newer than the newest');
  return { oldest, newest, sessionId: reader.shortString('the session id'), extra: reader };
}

/** @throws VersionError */
export function agreedVersion(
  { oldest, newest }: Pick<RouterHello, 'oldest' | 'newest'>,
  facts: ProtocolFacts,
  hasAlpn: boolean,
): number {
  const version = Math.min(newest, hasAlpn ? facts.newest : facts.newestWithoutAlpn);
  if (version < Math.max(oldest, facts.oldest)) {
    throw new VersionError(`it speaks versions ${oldest} to ${newest}`);
  }
  return version;
}

/**
 * The router's key of this session, for authenticators. It is signed with the key of the certificate that TLS has
 * shown; a messaging router repeats its certificates here.
 *
 * @param certificates of TLS, the leaf first.
 * @returns undefined when the router has none.
 * @throws MalformedError
 */
export function readSessionKey(
  { extra }: RouterHello,
  { hasCertificates, certificates }: { hasCertificates: boolean; certificates: readonly X509Certificate[] },
): RawKey | undefined {
  if (extra.isAtEnd) return undefined;
  if (hasCertificates) {
    const count = extra.byte('a count of certificates');
    const shown = Array.from({ length: count }, () => extra.longString('a certificate'));
    const isSame =
      count === certificates.length && shown.every((der, index) => der.equals(certificates[index]!.raw));
    if (!isSame) throw new MalformedError('the hello has other certificates than TLS');
  }
  return openSignedKey(extra.longString('the session key'), certificates[0]!);
}

const SEQUENCE = 0x30;
const BIT_STRING = 0x03;

/** A key with its signature, in DER: a sequence of the signed key, the algorithm, and the signature. */
function openSignedKey(der: Buffer, leaf: X509Certificate): RawKey {
  const outer = new Reader(der);
  const parts = new Reader(elementIn(outer, SEQUENCE).content);
  const signed = elementIn(parts, SEQUENCE);
  elementIn(parts, SEQUENCE);
  const signature = elementIn(parts, BIT_STRING).content;
  parts.end('the signature of the session key');
  outer.end('the session key');
  // The first byte of a bit string says how many bits of the last one are unused.
  if (!verify(undefined, signed.whole, leaf.publicKey, signature.subarray(1))) {
    throw new MalformedError('the session key is not signed with the key of the certificate');
  }
  const key = rawPublicKeyIn('x25519', signed.content);
  if (!key) throw new MalformedError('the session key is not one of X25519');
  return key;
}

/** Lengths of one byte, or of one byte more: a signed key is never longer. */
function elementIn(reader: Reader, tag: number): { whole: Buffer; content: Buffer } {
  const head = reader.take(2, 'an element of the session key');
  if (head[0] !== tag) throw new MalformedError('the session key is not built as signed keys are');
  const isLong = head[1] === 0x81;
  const length = isLong ? reader.byte('a length of the session key') : head[1]!;
  const content = reader.take(length, 'an element of the session key');
  const prefix = isLong ? Buffer.from([tag, 0x81, length]) : head;
  return { whole: Buffer.concat([prefix, content]), content };
}

/** @param keyHash the fingerprint by which the router was found. */
export function encodeHello(version: number, keyHash: Buffer): Buffer {
  return Buffer.concat([word16(version), shortString(keyHash)]);
}

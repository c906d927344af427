/** Transmissions, a command or an answer each, and how they are packed into blocks. */
import { createHash, sign } from 'node:crypto';
import type { RawKey } from '../ports.ts';
import type { Curve } from '../signing.ts';
import { dhSecret, privateKeyObject } from '../signing.ts';
import { MalformedError, Reader, longString, shortString } from './encoding.ts';
import { sealBox } from './nacl-box.ts';
import type { ProtocolFacts } from './versions.ts';

/** Of a client's command: it is the nonce of an authenticator too. */
export const CORRELATION_BYTES = 24;
/** For the length, the count, and a tag that later versions put there. */
const BLOCK_OVERHEAD_BYTES = 19;
/** For the length alone, where a block is one transmission. */
const SINGLE_OVERHEAD_BYTES = 2;
const LENGTH_BYTES = 2;
const MOST_IN_BLOCK = 255;
const NOTHING = Buffer.alloc(0);

/** The session that a transmission belongs to: as little of it as its bytes depend on. */
export interface SessionBinding {
  facts: ProtocolFacts;
  version: number;
  id: Buffer;
  /** The router's key of this session, raw. */
  routerKey?: RawKey | undefined;
}

/** Signs when it is Ed25519; an X25519 key authenticates together with the router's key of the session. */
export interface CommandKey {
  curve: Curve;
  privateKey: RawKey;
}

export interface Transmission {
  /** Empty in what a router says without being asked. */
  correlationId: Buffer;
  /** Empty when it is about nothing in particular. */
  entityId: Buffer;
  content: Buffer;
}

/** @throws Error for an X25519 key in a session without a key of the router. */
export function encodeTransmission(
  { correlationId, entityId, content }: Transmission,
  session: SessionBinding,
  key?: CommandKey,
): Buffer {
  const body = Buffer.concat([shortString(correlationId), shortString(entityId), content]);
  const authorized = Buffer.concat([shortString(session.id), body]);
  const authorization = key ? authorizationOf(authorized, correlationId, session, key) : NOTHING;
  return Buffer.concat([shortString(authorization), isSessionSent(session) ? authorized : body]);
}

function authorizationOf(
  authorized: Buffer,
  correlationId: Buffer,
  { routerKey }: SessionBinding,
  { curve, privateKey }: CommandKey,
): Buffer {
  if (curve === 'ed25519') return sign(undefined, authorized, privateKeyObject(curve, privateKey));
  if (!routerKey) throw new Error('the router has no key that an authenticator needs');
  const digest = createHash('sha512').update(authorized).digest();
  return sealBox(digest, dhSecret(routerKey, privateKey), correlationId);
}

/** @throws MalformedError */
export function decodeTransmission(bytes: Buffer, session: SessionBinding): Transmission {
  const reader = new Reader(bytes);
  // Of a router's answer, always empty.
  reader.shortString('an authorization');
  if (isSessionSent(session) && !reader.shortString('a session id').equals(session.id)) {
    throw new MalformedError('a transmission is of another session');
  }
  const correlationId = reader.shortString('a correlation id');
  const entityId = reader.shortString('an entity id');
  return { correlationId, entityId, content: reader.rest() };
}

const isSessionSent = ({ facts, version }: SessionBinding): boolean => version < facts.impliedSession;

/** Bytes of a transmission for which every block has room. */
export function roomOf({ facts, version }: SessionBinding): number {
  if (version < facts.batches) return facts.blockBytes - SINGLE_OVERHEAD_BYTES;
  return facts.blockBytes - BLOCK_OVERHEAD_BYTES - LENGTH_BYTES;
}

/**
 * Packs transmissions in their order, as many into each block as fit; each of them fits, see `roomOf`.
 *
 * @returns what stands in each block, and how many transmissions that are.
 */
export function packTransmissions(
  transmissions: readonly Buffer[],
  session: SessionBinding,
): { content: Buffer; count: number }[] {
  if (session.version < session.facts.batches) {
    return transmissions.map((content) => ({ content, count: 1 }));
  }
  const room = session.facts.blockBytes - BLOCK_OVERHEAD_BYTES;
  const blocks: Buffer[][] = [];
  let used = room;
  for (const transmission of transmissions) {
    const size = LENGTH_BYTES + transmission.length;
    if (used + size > room || blocks.at(-1)!.length === MOST_IN_BLOCK) {
      blocks.push([]);
      used = 0;
    }
    blocks.at(-1)!.push(longString(transmission));
    used += size;
  }
  return blocks.map((block) => ({
    content: Buffer.concat([Buffer.from([block.length]), ...block]),
    count: block.length,
  }));
}

/** @throws MalformedError */
export function unpackTransmissions(content: Buffer, session: SessionBinding): Transmission[] {
  if (session.version < session.facts.batches) return [decodeTransmission(content, session)];
  const reader = new Reader(content);
  const count = reader.byte('a count of transmissions');
  if (count === 0) throw new MalformedError('a block has no transmission');
  const transmissions = Array.from({ length: count }, () =>
    decodeTransmission(reader.longString('a transmission'), session),
  );
  reader.end('the last transmission');
  return transmissions;
}

/**
 * How the routers' own protocols write bytes: strings with their length before them, and blocks of one size. A block holds
 * transmissions: each is a command or an answer.
 */
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { sign } from 'node:crypto';
import type { RawKey } from './ports.ts';
import { privateKeyObject } from './keys.ts';

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
}

export const PROTOCOLS: Record<RouterProtocol, ProtocolFacts> = {
  smp: {
    ...{ blockBytes: 16_384, alpn: 'smp/1', oldest: 4, newest: 9 },
    ...{ newestWithoutAlpn: 6, impliedSession: 7, batches: 4 },
  },
  ntf: {
    ...{ blockBytes: 512, alpn: 'ntf/1', oldest: 1, newest: 2 },
    ...{ newestWithoutAlpn: 1, impliedSession: 2, batches: 2 },
  },
};

/** What came is nothing that the protocol has. The text says what was looked for, and quotes nothing. */
export class MalformedError extends Error {
  override name = 'MalformedError';
}

const MOST_SHORT_BYTES = 255;
const PADDING = 0x23;
const LENGTH_BYTES = 2;

export function word16(value: number): Buffer {
  const bytes = Buffer.alloc(LENGTH_BYTES);
  bytes.writeUInt16BE(value);
  return bytes;
}

/** A string of at most 255 bytes. @throws RangeError when it is longer. */
export function shortString(bytes: Buffer): Buffer {
  if (bytes.length > MOST_SHORT_BYTES) throw new RangeError(`a short string has ${bytes.length} bytes`);
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

/** A string of at most 65,535 bytes. @throws RangeError when it is longer. */
export const longString = (bytes: Buffer): Buffer => Buffer.concat([word16(bytes.length), bytes]);

/** @throws RangeError when the content does not fit. */
export function padBlock(content: Buffer, blockBytes: number): Buffer {
  if (content.length > blockBytes - LENGTH_BYTES) {
    throw new RangeError(`${content.length} bytes do not fit into a block of ${blockBytes}`);
  }
  return Buffer.concat([word16(content.length), content, Buffer.alloc(blockBytes, PADDING)], blockBytes);
}

/**
 * @param isHello what stands behind a hello is of no matter.
 * @throws MalformedError
 */
export function unpadBlock(block: Buffer, isHello = false): Buffer {
  const end = LENGTH_BYTES + block.readUInt16BE(0);
  if (end > block.length) throw new MalformedError('a block says that it is longer than a block');
  if (!isHello && !isPadding(block.subarray(end))) {
    throw new MalformedError('a block is not padded as blocks are');
  }
  return block.subarray(LENGTH_BYTES, end);
}

/** All bytes are the first one when each is the one before it, which is one comparison of memory. */
const isPadding = (bytes: Buffer): boolean =>
  bytes.length === 0 || (bytes[0] === PADDING && bytes.subarray(1).equals(bytes.subarray(0, -1)));

/** Blocks come in parts, and several in one read. @returns takes the next bytes. */
export function createBlockReader(
  blockBytes: number,
  onBlock: (block: Buffer) => void,
): (chunk: Buffer) => void {
  let parts: Buffer[] = [];
  let size = 0;
  return (chunk) => {
    parts.push(chunk);
    size += chunk.length;
    if (size < blockBytes) return;
    const bytes = Buffer.concat(parts);
    const whole = size - (size % blockBytes);
    parts = [Buffer.from(bytes.subarray(whole))];
    size -= whole;
    for (let at = 0; at < whole; at += blockBytes) onBlock(bytes.subarray(at, at + blockBytes));
  };
}

/** Reads bytes from the first to the last. Everything it gives is a part of what it was given, not a copy. */
export class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** @throws MalformedError when there are fewer bytes. */
  take(length: number, what: string): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new MalformedError(`${what} ends too early`);
    const bytes = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return bytes;
  }

  byte(what: string): number {
    return this.take(1, what)[0]!;
  }

  word16(what: string): number {
    return this.take(LENGTH_BYTES, what).readUInt16BE();
  }

  shortString(what: string): Buffer {
    return this.take(this.byte(what), what);
  }

  longString(what: string): Buffer {
    return this.take(this.word16(what), what);
  }

  rest(): Buffer {
    return this.take(this.#bytes.length - this.#at, 'the rest');
  }

  /** @throws MalformedError when something is left. */
  end(what: string): void {
    if (!this.isAtEnd) throw new MalformedError(`${what} is followed by something`);
  }
}

/** Of a client's command. */
export const CORRELATION_BYTES = 24;
/** For the length, the count, and a tag that later versions put there. */
const BLOCK_OVERHEAD_BYTES = 19;
const MOST_IN_BLOCK = 255;

/** The session that a transmission belongs to: as little of it as its bytes depend on. */
export interface SessionBinding {
  facts: ProtocolFacts;
  version: number;
  id: Buffer;
}

export interface Transmission {
  /** Empty in what a router says without being asked. */
  correlationId: Buffer;
  /** Empty when it is about nothing in particular. */
  entityId: Buffer;
  content: Buffer;
}

/** @param key Ed25519, which signs it. */
export function encodeTransmission(
  { correlationId, entityId, content }: Transmission,
  session: SessionBinding,
  key?: RawKey,
): Buffer {
  const body = Buffer.concat([shortString(correlationId), shortString(entityId), content]);
  const authorized = Buffer.concat([shortString(session.id), body]);
  const authorization = key ? sign(undefined, authorized, privateKeyObject('ed25519', key)) : Buffer.alloc(0);
  return Buffer.concat([shortString(authorization), isSessionSent(session) ? authorized : body]);
}

/** @throws MalformedError */
function decodeTransmission(bytes: Buffer, session: SessionBinding): Transmission {
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
  if (version < facts.batches) return facts.blockBytes - LENGTH_BYTES;
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

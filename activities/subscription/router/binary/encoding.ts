/** How the routers' own protocols write bytes: strings with their length before them, and blocks of one size. */

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

/** Blocks come in parts, and several at once. @returns takes the next bytes. */
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

/** How values are written in the binary protocol: most after their length, nothing between them. */

/** What was received is not what the protocol says. */
export class MalformedError extends Error {
  override name = 'MalformedError';
}

/** After one byte with its length. @throws RangeError past 255 bytes. */
export function short(value: Buffer | string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([Buffer.from([checked(bytes.length, 0xff)]), bytes]);
}

/** After two bytes with its length. @throws RangeError past 65,535 bytes. */
export function large(bytes: Buffer): Buffer {
  return Buffer.concat([word16(bytes.length), bytes]);
}

/** @throws RangeError for what does not fit into two bytes. */
export function word16(value: number): Buffer {
  return Buffer.from([checked(value, 0xffff) >> 8, value & 0xff]);
}

/** Seconds since the epoch in eight bytes. */
export function timestamp(milliseconds: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(Math.floor(milliseconds / 1_000)));
  return bytes;
}

/** Content after its length, filled up with `#`. @throws RangeError when it is longer than the room for it. */
export function pad(content: Buffer, length: number): Buffer {
  checked(content.length, length - 2);
  return Buffer.concat([word16(content.length), content], length).fill('#', content.length + 2);
}

/** @throws MalformedError when the length is more than there is. */
export function unpad(padded: Buffer): Buffer {
  return new Reader(padded).large();
}

function checked(value: number, most: number): number {
  if (value > most) throw new RangeError(`${value} is more than ${most}`);
  return value;
}

/** Takes values off the front of bytes. Every method throws MalformedError when there is less than it wants. */
export class Reader {
  #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get rest(): Buffer {
    return this.#bytes;
  }

  take(length: number): Buffer {
    if (this.#bytes.length < length) throw new MalformedError(`${length} bytes are missing`);
    const taken = this.#bytes.subarray(0, length);
    this.#bytes = this.#bytes.subarray(length);
    return taken;
  }

  byte(): number {
    return this.take(1)[0]!;
  }

  word16(): number {
    return this.take(2).readUInt16BE();
  }

  short(): Buffer {
    return this.take(this.byte());
  }

  large(): Buffer {
    return this.take(this.word16());
  }

  /** One of these characters. */
  oneOf<Character extends string>(...characters: Character[]): Character {
    const found = characters.find((character) => character.charCodeAt(0) === this.#bytes[0]);
    if (found === undefined) throw new MalformedError(`none of ${characters.join(', ')}`);
    this.take(1);
    return found;
  }

  /** @throws MalformedError when something is left. */
  end(): void {
    if (this.#bytes.length > 0) throw new MalformedError(`${this.#bytes.length} bytes too many`);
  }
}

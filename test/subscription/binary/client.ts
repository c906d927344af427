/**
 * A client of binary routers, written from the documents of the protocol and from nothing else: it shares no code with
 * the stand-in, so that the two cannot be wrong in the same way.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  randomBytes,
  sign,
} from 'node:crypto';
import type { KeyObject, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { hsalsa, xsalsa20poly1305 } from '@noble/ciphers/salsa.js';
import { eventually } from '../../eventually.ts';

export const BLOCK = { smp: 16_384, ntf: 512 };
export type Protocol = keyof typeof BLOCK;

export const text = (value: string): Buffer => Buffer.from(value, 'latin1');
export const sized = (value: Buffer | string): Buffer => {
  const bytes = typeof value === 'string' ? text(value) : value;
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
};
export const wide = (bytes: Buffer): Buffer =>
  Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes]);
export const join = (...parts: (Buffer | string)[]): Buffer =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? text(part) : part)));
export const blockOf = (content: Buffer, size: number): Buffer =>
  Buffer.concat([wide(content), Buffer.alloc(size - content.length - 2, '#')]);

/** Cuts a value with one or two bytes of length off the front. */
export function cut(bytes: Buffer, lengthBytes = 1): [value: Buffer, rest: Buffer] {
  const end = lengthBytes + bytes.readUIntBE(0, lengthBytes);
  if (end > bytes.length) throw new Error(`${end} bytes of ${bytes.length}`);
  return [bytes.subarray(lengthBytes, end), bytes.subarray(end)];
}

export interface Keys {
  privateKey: KeyObject;
  /** DER. */
  publicDer: Buffer;
}

export function newKeys(curve: 'ed25519' | 'ed448' | 'x25519'): Keys {
  const { privateKey } = generateKeyPairSync(curve as 'ed25519');
  return keysOf(privateKey);
}

export function keysOf(privateKey: KeyObject): Keys {
  return { privateKey, publicDer: createPublicKey(privateKey).export({ type: 'spki', format: 'der' }) };
}

export const keysFrom = (pkcs8: string): Keys =>
  keysOf(createPrivateKey({ key: Buffer.from(pkcs8, 'hex'), format: 'der', type: 'pkcs8' }));

export function agree(publicDer: Buffer, { privateKey }: Keys): Buffer {
  return diffieHellman({
    publicKey: createPublicKey({ key: publicDer, format: 'der', type: 'spki' }),
    privateKey,
  });
}

/** NaCl's crypto_box for a secret that was agreed. */
function boxOf(secret: Buffer, nonce: Buffer) {
  const words = (bytes: Uint8Array) => new Uint32Array(new Uint8Array(bytes).buffer);
  const key = new Uint32Array(8);
  hsalsa(words(text('expand 32-byte k')), words(secret), new Uint32Array(4), key);
  return xsalsa20poly1305(new Uint8Array(key.buffer), nonce);
}

export const openBox = (sealed: Buffer, secret: Buffer, nonce: Buffer): Buffer =>
  Buffer.from(boxOf(secret, nonce).decrypt(sealed));

/** Without its padding. */
export const openPadded = (sealed: Buffer, secret: Buffer, nonce: Buffer): Buffer =>
  cut(openBox(sealed, secret, nonce), 2)[0];

export const sealBox = (plain: Buffer, secret: Buffer, nonce: Buffer): Buffer =>
  Buffer.from(boxOf(secret, nonce).encrypt(plain));

export interface Said {
  correlationId: Buffer;
  entity: Buffer;
  content: Buffer;
}

export interface Command {
  content: Buffer | string;
  entity?: Buffer;
  /** Ed25519 or Ed448 signs, X25519 authenticates; without one the command is not authorized. */
  keys?: Keys;
  correlationId?: Buffer;
}

export interface Hello {
  oldest: number;
  newest: number;
  sessionId: Buffer;
  chain: Buffer[];
  signedKey: Buffer;
  rest: Buffer;
}

export function readHello(protocol: Protocol, content: Buffer): Hello {
  const [sessionId, afterId] = cut(content.subarray(4));
  let rest = afterId;
  const chain: Buffer[] = [];
  let signedKey = Buffer.alloc(0);
  if (rest.length > 0) {
    const count = protocol === 'smp' ? rest[0]! : 0;
    if (protocol === 'smp') rest = rest.subarray(1);
    for (let index = 0; index < count; index++) {
      const [certificate, after] = cut(rest, 2);
      chain.push(certificate);
      rest = after;
    }
    const [key, after] = cut(rest, 2);
    signedKey = Buffer.from(key);
    rest = after;
  }
  return {
    oldest: content.readUInt16BE(0),
    newest: content.readUInt16BE(2),
    sessionId,
    chain,
    signedKey,
    rest,
  };
}

/** The X25519 key (DER) in the router's signed key, the sequence of it that is signed, and what signs it. */
export function splitSignedKey(signedKey: Buffer): { key: Buffer; signed: Buffer; signature: Buffer } {
  const start = signedKey[1]! < 0x80 ? 2 : 3;
  const signed = signedKey.subarray(start, start + 46);
  // After it: the algorithm, seven bytes, then a string of bits that begins with its number of unused bits.
  const string = signedKey.subarray(start + 46 + 7);
  return { key: signed.subarray(2), signed, signature: string.subarray(string[1]! < 0x80 ? 3 : 4) };
}

export type BinaryClient = Awaited<ReturnType<typeof openClient>>;

export interface ClientOptions {
  protocol: Protocol;
  /** To agree on; default: the newest that is offered. */
  version?: number;
  /** Without ALPN the router speaks its old versions. */
  withoutAlpn?: boolean;
  /** Of the router that is meant, if another. */
  keyHash?: Buffer;
  tls?: ConnectionOptions;
}

/** Connects, and shakes hands. @throws Error when the connection ends before the router's hello. */
export async function openClient(
  { host, port, keyHash }: { host: string; port: number; keyHash: string },
  options: ClientOptions,
) {
  const { protocol } = options;
  const size = BLOCK[protocol];
  const socket = connect({
    host,
    port,
    rejectUnauthorized: false,
    ...(options.withoutAlpn ? {} : { ALPNProtocols: [`${protocol}/1`] }),
    ...options.tls,
  });
  const blocks: Buffer[] = [];
  const said: Said[] = [];
  let bytes = Buffer.alloc(0);
  /** 0: not agreed yet. */
  let version = 0;
  const closed = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    for (; bytes.length >= size; bytes = bytes.subarray(size)) {
      const block = Buffer.from(bytes.subarray(0, size));
      blocks.push(block);
      if (version > 0) said.push(...transmissionsIn(block));
    }
  });

  const isBatched = () => version >= (protocol === 'smp' ? 4 : 2);
  const isImplied = () => version >= (protocol === 'smp' ? 7 : 2);

  function transmissionsIn(block: Buffer): Said[] {
    const [content] = cut(block, 2);
    if (!isBatched()) return [readSaid(content)];
    let rest = content.subarray(1);
    const found = Array.from({ length: content[0]! }, () => {
      const [transmission, after] = cut(rest, 2);
      rest = after;
      return readSaid(transmission);
    });
    expect(rest.length).toBe(0);
    return found;
  }

  function readSaid(transmission: Buffer): Said {
    const [authorization, rest] = cut(transmission);
    expect(authorization.length).toBe(0);
    const [session, afterSession] = isImplied() ? [hello.sessionId, rest] : cut(rest);
    expect(session).toEqual(hello.sessionId);
    const [correlationId, afterId] = cut(afterSession);
    const [entity, content] = cut(afterId);
    return { correlationId, entity, content };
  }

  await Promise.race([once(socket, 'secureConnect'), closed]);
  const first = await eventually('the hello of the router', async () => {
    if (socket.destroyed) return BROKEN;
    return blocks[0];
  });
  if (first === BROKEN) throw new Error('the connection ended');
  const hello = readHello(protocol, cut(first, 2)[0]);
  version = options.version ?? hello.newest;
  blocks.length = 0;
  const clientHello = join(
    Buffer.from([0, version]),
    sized(options.keyHash ?? Buffer.from(keyHash, 'base64url')),
  );
  socket.write(blockOf(clientHello, size));
  const sessionKey = hello.signedKey.length > 0 ? splitSignedKey(hello.signedKey).key : undefined;

  function transmissionOf({ content, entity = Buffer.alloc(0), keys, correlationId }: Command): Buffer {
    const nonce = correlationId ?? randomBytes(24);
    const rest = join(sized(nonce), sized(entity), content);
    const authorized = join(sized(hello.sessionId), rest);
    const authorization = keys ? authorize(keys, authorized, nonce) : Buffer.alloc(0);
    return join(sized(authorization), isImplied() ? rest : authorized);
  }

  function authorize(keys: Keys, authorized: Buffer, nonce: Buffer): Buffer {
    if (keys.privateKey.asymmetricKeyType !== 'x25519') return sign(undefined, authorized, keys.privateKey);
    const digest = createHash('sha512').update(authorized).digest();
    return sealBox(digest, agree(sessionKey!, keys), nonce);
  }

  const blockWith = (transmissions: Buffer[]): Buffer =>
    blockOf(
      isBatched() ? join(Buffer.from([transmissions.length]), ...transmissions.map(wide)) : transmissions[0]!,
      size,
    );

  return {
    socket,
    hello,
    /** As they came, the hello without. */
    blocks,
    /** All that the router said, oldest first. */
    said,
    closed,
    transmissionOf,
    blockWith,
    write: (block: Buffer): void => void socket.write(block),
    /** Sends them in one block. @returns what the router said to each, in their order. */
    async send(...commands: Command[]): Promise<Buffer[]> {
      const sent = commands.map((command) => ({ correlationId: randomBytes(24), ...command }));
      socket.write(blockWith(sent.map(transmissionOf)));
      const answers: Buffer[] = [];
      for (const { correlationId } of sent) answers.push((await answerTo(correlationId)).content);
      return answers;
    },
    answerTo,
    /** What the router says unasked. */
    event: (entity: Buffer, begins: string): Promise<Said> =>
      eventually(`${begins} of the router`, async () =>
        said.find(
          (one) =>
            one.correlationId.length === 0 &&
            one.entity.equals(entity) &&
            one.content.toString('latin1').startsWith(begins),
        ),
      ),
    async close() {
      socket.destroy();
      await closed;
    },
  };

  /** `BROKEN` when the connection is over before. */
  function answerTo(correlationId: Buffer): Promise<Said> {
    const isIt = (one: Said) => one.correlationId.equals(correlationId);
    const found = said.find(isIt);
    if (found) return Promise.resolve(found);
    const broken = closed.then(() => ({ correlationId, entity: BROKEN, content: BROKEN }));
    const answer = new Promise<Said>((resolve) => {
      const look = () => {
        const late = said.find(isIt);
        if (!late) return;
        socket.off('data', look);
        resolve(late);
      };
      socket.on('data', look);
    });
    return Promise.race([answer, broken]);
  }
}

/** In the place of an answer when the connection is over. */
export const BROKEN = text('BROKEN');

/** The router's certificates, the online one first. */
export function chainOf(socket: TLSSocket): X509Certificate[] {
  const online = socket.getPeerX509Certificate()!;
  const offline = online.issuerCertificate;
  return offline ? [online, offline] : [online];
}

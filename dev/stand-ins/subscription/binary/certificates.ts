/**
 * The certificates of a binary router: an offline one, whose fingerprint is in the router's address, and an online one
 * signed by it, whose key ends TLS and signs the key of each session. Ed25519, for which no library that is here makes
 * certificates: their DER (RFC 5280, RFC 8410) is written below.
 */
import { createPrivateKey, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { LOOPBACK } from '../../../servers/ports.ts';
import { MalformedError, Reader } from './bytes.ts';

/** As a data file keeps it. The key of the offline certificate is not needed again. */
export interface BinaryCertificate {
  /** Of the online certificate, PEM. */
  keyPem: string;
  /** The online one first, DER in base64. */
  chain: string[];
}

const DAY_MS = 24 * 60 * 60 * 1_000;
/** Longer than any stand-in is kept. */
const VALID_DAYS = 3_650;

const TAG = { boolean: 1, integer: 2, bits: 3, octets: 4, oid: 6, utf8: 12, time: 24, sequence: 48, set: 49 };
const VERSION_FIELD = 0xa0;
const EXTENSIONS_FIELD = 0xa3;
const OID = { ed25519: '2b6570', commonName: '550403', basicConstraints: '551d13', keyUsage: '551d0f' };

/** Makes both certificates. */
export async function createBinaryCertificate(): Promise<BinaryCertificate> {
  const offline = generateKeyPairSync('ed25519');
  const online = generateKeyPairSync('ed25519');
  const issuer = { name: 'galaxy-notify router CA', key: offline.privateKey };
  return {
    keyPem: online.privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    chain: [
      certify({ name: LOOPBACK, key: online.publicKey, isAuthority: false }, issuer),
      certify({ name: issuer.name, key: offline.publicKey, isAuthority: true }, issuer),
    ].map((der) => der.toString('base64')),
  };
}

export function pemOf(chain: readonly string[]): string {
  return chain.map((der) => `-----BEGIN CERTIFICATE-----\n${der}\n-----END CERTIFICATE-----\n`).join('');
}

/** A public key with the signature of the online certificate's key. Routers sign a sequence that has nothing but the key. */
export function signPublicKey(publicKey: Buffer, signer: string): Buffer {
  const signed = der(TAG.sequence, publicKey);
  const signature = sign(undefined, signed, createPrivateKey(signer));
  return der(TAG.sequence, signed, algorithm(), bits(signature));
}

/** Splits what `signPublicKey` made, whichever algorithm signed. @throws MalformedError when it is something else. */
export function readSignedKey(bytes: Buffer): { signed: Buffer; publicKey: Buffer; signature: Buffer } {
  const whole = new Reader(bytes);
  const fields = new Reader(readDer(whole).content);
  whole.end();
  const { encoded: signed, content: publicKey } = readDer(fields);
  readDer(fields);
  const signature = readDer(fields).content.subarray(1);
  fields.end();
  return { signed, publicKey, signature };
}

function certify(
  subject: { name: string; key: KeyObject; isAuthority: boolean },
  issuer: { name: string; key: KeyObject },
): Buffer {
  const now = Date.now();
  const serial = randomBytes(16);
  // A positive number, without zeros in front.
  serial[0] = (serial[0]! & 0x7f) | 0x40;
  const constraints = subject.isAuthority ? [der(TAG.boolean, Buffer.from([0xff]))] : [];
  const usage = subject.isAuthority ? '0106' : '0780';
  const content = der(
    TAG.sequence,
    der(VERSION_FIELD, der(TAG.integer, Buffer.from([2]))),
    der(TAG.integer, serial),
    algorithm(),
    nameOf(issuer.name),
    der(TAG.sequence, timeOf(now - DAY_MS), timeOf(now + VALID_DAYS * DAY_MS)),
    nameOf(subject.name),
    subject.key.export({ type: 'spki', format: 'der' }),
    der(
      EXTENSIONS_FIELD,
      der(
        TAG.sequence,
        extension(OID.basicConstraints, der(TAG.sequence, ...constraints)),
        extension(OID.keyUsage, der(TAG.bits, Buffer.from(usage, 'hex'))),
      ),
    ),
  );
  return der(TAG.sequence, content, algorithm(), bits(sign(undefined, content, issuer.key)));
}

const algorithm = (): Buffer => der(TAG.sequence, oid(OID.ed25519));
const oid = (hex: string): Buffer => der(TAG.oid, Buffer.from(hex, 'hex'));
const bits = (bytes: Buffer): Buffer => der(TAG.bits, Buffer.from([0]), bytes);

function nameOf(name: string): Buffer {
  const attribute = der(TAG.sequence, oid(OID.commonName), der(TAG.utf8, Buffer.from(name)));
  return der(TAG.sequence, der(TAG.set, attribute));
}

function extension(id: string, value: Buffer): Buffer {
  return der(TAG.sequence, oid(id), der(TAG.boolean, Buffer.from([0xff])), der(TAG.octets, value));
}

/** `YYYYMMDDhhmmssZ`. */
function timeOf(milliseconds: number): Buffer {
  const digits = new Date(milliseconds)
    .toISOString()
    .replaceAll(/[^0-9]/g, '')
    .slice(0, 14);
  return der(TAG.time, Buffer.from(`${digits}Z`));
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const header =
    length < 0x80
      ? [tag, length]
      : length < 0x100
        ? [tag, 0x81, length]
        : [tag, 0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from(header), content]);
}

/** Takes one value off the front. */
function readDer(reader: Reader): { encoded: Buffer; content: Buffer } {
  const { rest } = reader;
  reader.byte();
  const first = reader.byte();
  const lengthBytes = first < 0x80 ? 0 : first - 0x80;
  if (lengthBytes > 2) throw new MalformedError('a value is too long');
  const length = lengthBytes === 0 ? first : reader.take(lengthBytes).readUIntBE(0, lengthBytes);
  const content = reader.take(length);
  return { encoded: rest.subarray(0, rest.length - reader.rest.length), content };
}

/**
 * A self-signed certificate for a TLS server on the loopback, made anew at each start, so that no private key lies in
 * the repository and nobody needs openssl. Node signs but does not write certificates; the DER of this one kind
 * (RFC 5280) is short enough to be written here.
 */
import type { KeyObject } from 'node:crypto';
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { LOOPBACK } from '../../servers/ports.ts';

/** What a TLS server and its clients need, PEM each. */
export interface LoopbackCertificate {
  keyPem: string;
  /** For the server, and as the authority that clients trust. */
  certPem: string;
}

const DAY_MS = 24 * 60 * 60 * 1_000;
/** Longer than any process that was started with it. */
const VALID_DAYS = 365;

/** Tags of DER: universal ones, and the numbered ones of RFC 5280's structures. */
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OBJECT_IDENTIFIER = 0x06;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const SEQUENCE = 0x30;
const SET = 0x31;
const VERSION = 0xa0;
const EXTENSIONS = 0xa3;
const DNS_NAME = 0x82;
const IP_ADDRESS = 0x87;

/** Object identifiers, encoded. */
const ECDSA_WITH_SHA256 = der(OBJECT_IDENTIFIER, Buffer.from('2a8648ce3d040302', 'hex'));
const COMMON_NAME = der(OBJECT_IDENTIFIER, Buffer.from('550403', 'hex'));
const SUBJECT_ALT_NAME = der(OBJECT_IDENTIFIER, Buffer.from('551d11', 'hex'));

/** Makes a certificate for `127.0.0.1` and `localhost`, valid from yesterday for a year. */
export function createLoopbackCertificate(): LoopbackCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const signed = toBeSigned(publicKey, Date.now());
  const certificate = der(
    SEQUENCE,
    signed,
    der(SEQUENCE, ECDSA_WITH_SHA256),
    bitString(sign('sha256', signed, privateKey)),
  );
  const base64 = certificate.toString('base64').replace(/.{64}(?=.)/g, '$&\n');
  return {
    keyPem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    certPem: `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`,
  };
}

/** RFC 5280 `TBSCertificate`; issuer and subject are the same. */
function toBeSigned(publicKey: KeyObject, now: number): Buffer {
  const commonName = der(SEQUENCE, COMMON_NAME, der(UTF8_STRING, Buffer.from('galaxy-notify loopback')));
  const name = der(SEQUENCE, der(SET, commonName));
  const names = der(
    SEQUENCE,
    der(DNS_NAME, Buffer.from('localhost')),
    der(IP_ADDRESS, Buffer.from(LOOPBACK.split('.').map(Number))),
  );
  return der(
    SEQUENCE,
    der(VERSION, der(INTEGER, Buffer.from([2]))),
    // Positive and without a leading zero byte, as DER wants it.
    der(INTEGER, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    der(SEQUENCE, ECDSA_WITH_SHA256),
    name,
    der(SEQUENCE, utcTime(now - DAY_MS), utcTime(now + VALID_DAYS * DAY_MS)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(EXTENSIONS, der(SEQUENCE, der(SEQUENCE, SUBJECT_ALT_NAME, der(OCTET_STRING, names)))),
  );
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), derLength(content.length), content]);
}

/** One byte below 128, else the number of bytes and the bytes; nothing here reaches 65,536. */
function derLength(length: number): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  return length < 0x100 ? Buffer.from([0x81, length]) : Buffer.from([0x82, length >> 8, length & 0xff]);
}

/** With no unused bits in the last byte. */
function bitString(bytes: Buffer): Buffer {
  return der(BIT_STRING, Buffer.from([0]), bytes);
}

/** `YYMMDDHHMMSSZ`; good until 2049. */
function utcTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\D/g, '').slice(2, 14);
  return der(UTC_TIME, Buffer.from(`${digits}Z`));
}

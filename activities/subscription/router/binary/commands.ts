/** Commands toward messaging (SMP) and notification (NTF) routers, as bytes. */
import type { DeviceToken, RawKey } from '../ports.ts';
import { privateKeyDer, publicKeyDer } from '../signing.ts';
import { shortString, word16 } from './encoding.ts';
import { SMP_BASIC_AUTH, SMP_SENDER_SECURES, SMP_SUBSCRIBE_MODE } from './versions.ts';

export type SmpCommand =
  | {
      op: 'NEW';
      recipientKey: RawKey;
      recipientDhKey: RawKey;
      /** The router's password for those who may make queues. */
      basicAuth?: string | undefined;
      /** Whether this session gets the queue's messages from now on. */
      subscribe: boolean;
      senderMaySecure: boolean;
    }
  | { op: 'KEY' | 'SKEY'; senderKey: RawKey }
  | { op: 'NKEY'; notifierKey: RawKey; recipientDhKey: RawKey }
  | { op: 'SUB' | 'NDEL' | 'DEL' | 'PING' };

export type NtfCommand =
  | { op: 'TNEW'; device: DeviceToken; authKey: RawKey; dhKey: RawKey }
  | { op: 'TVFY'; code: Buffer }
  | { op: 'TRPL'; device: DeviceToken }
  | { op: 'TCRN'; minutes: number }
  | {
      op: 'SNEW';
      tokenId: Buffer;
      hosts: readonly string[];
      port: number;
      /** Fingerprint of the messaging router. */
      keyHash: Buffer;
      notifierId: Buffer;
      notifierPrivateKey: RawKey;
    }
  | { op: 'TCHK' | 'TDEL' | 'SCHK' | 'SDEL' | 'PING' };

export type BinaryCommand = SmpCommand | NtfCommand;

/** @throws RangeError when a part of it is longer than the protocol has room for. */
export function encodeCommand(command: BinaryCommand, version: number): Buffer {
  const parameters = parametersOf(command, version);
  return Buffer.concat([ascii(parameters.length === 0 ? command.op : `${command.op} `), ...parameters]);
}

function parametersOf(command: BinaryCommand, version: number): Buffer[] {
  switch (command.op) {
    case 'NEW':
      return [
        signingKey(command.recipientKey),
        agreementKey(command.recipientDhKey),
        ...passwordOf(command.basicAuth, version),
        ...(version >= SMP_SUBSCRIBE_MODE ? [ascii(command.subscribe ? 'S' : 'C')] : []),
        ...(version >= SMP_SENDER_SECURES ? [ascii(command.senderMaySecure ? 'T' : 'F')] : []),
      ];
    case 'KEY':
    case 'SKEY':
      return [signingKey(command.senderKey)];
    case 'NKEY':
      return [signingKey(command.notifierKey), agreementKey(command.recipientDhKey)];
    case 'TNEW':
      return [
        ascii('T'),
        ...deviceOf(command.device),
        signingKey(command.authKey),
        agreementKey(command.dhKey),
      ];
    case 'TVFY':
      return [shortString(command.code)];
    case 'TRPL':
      return deviceOf(command.device);
    case 'TCRN':
      return [word16(command.minutes)];
    case 'SNEW':
      return [
        ascii('S'),
        shortString(command.tokenId),
        Buffer.from([command.hosts.length]),
        ...command.hosts.map((host) => shortString(ascii(host))),
        shortString(ascii(String(command.port))),
        shortString(command.keyHash),
        shortString(command.notifierId),
        shortString(privateKeyDer('ed25519', command.notifierPrivateKey)),
      ];
    case 'SUB':
    case 'NDEL':
    case 'DEL':
    case 'TCHK':
    case 'TDEL':
    case 'SCHK':
    case 'SDEL':
    case 'PING':
      return [];
  }
}

const ascii = (text: string): Buffer => Buffer.from(text, 'ascii');
const signingKey = (key: RawKey): Buffer => shortString(publicKeyDer('ed25519', key));
const agreementKey = (key: RawKey): Buffer => shortString(publicKeyDer('x25519', key));

/** Older versions have nothing in the place of a password that there is not. */
function passwordOf(password: string | undefined, version: number): Buffer[] {
  if (version < SMP_BASIC_AUTH) return [];
  const isOptional = version >= SMP_SENDER_SECURES;
  if (password === undefined) return isOptional ? [ascii('0')] : [];
  return [ascii(isOptional ? '1' : 'A'), shortString(Buffer.from(password, 'utf8'))];
}

/** Hex is the same in either case; a router knows one. */
function deviceOf({ provider, token }: DeviceToken): Buffer[] {
  return [ascii(provider), shortString(ascii(token.toLowerCase()))];
}

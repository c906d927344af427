/** The words of the protocols as bytes: what routers are asked, what they answer, and what they say without being asked. */
import type { DeviceToken, RawKey, RouterError, TokenStatus } from './ports.ts';
import { privateKeyDer, publicKeyDer, rawPublicKeyIn } from './keys.ts';
import { shortString, word16, MalformedError, Reader } from './blocks.ts';
import { TOKEN_STATUSES } from '../../../api/subscription/router-address.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';

export type SmpCommand =
  { op: 'NKEY'; notifierKey: RawKey; recipientDhKey: RawKey } | { op: 'NDEL' | 'PING' };

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
export function encodeCommand(command: BinaryCommand): Buffer {
  const parameters = parametersOf(command);
  return Buffer.concat([ascii(parameters.length === 0 ? command.op : `${command.op} `), ...parameters]);
}

function parametersOf(command: BinaryCommand): Buffer[] {
  switch (command.op) {
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
    case 'NDEL':
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

/** Hex is the same in either case; a router knows one. */
function deviceOf({ provider, token }: DeviceToken): Buffer[] {
  return [ascii(provider), shortString(ascii(token.toLowerCase()))];
}

/** Bytes of the ids that routers give. */
const SHORTEST_ID = 16;
const LONGEST_ID = 24;
/** Of what a messaging router is said to have answered to a notification router. */
const MOST_REASON_CHARACTERS = 200;

export type BinaryAnswer =
  | { op: 'NID'; notifierId: Buffer; routerDhKey: RawKey }
  | { op: 'IDTKN'; tokenId: Buffer; routerDhKey: RawKey }
  | { op: 'TKN'; status: TokenStatus }
  | { op: 'IDSUB'; subscriptionId: Buffer }
  /** NEW, PENDING, ACTIVE, INACTIVE, SERVICE, END, DELETED, AUTH or `ERR <text>`. */
  | { op: 'SUB'; status: string }
  | { op: 'OK' | 'PONG' }
  /** Unasked: a message waits; another session has subscribed; or the queue or its notifier is deleted. */
  | { op: 'MSG' | 'END' | 'DELD' }
  /** Without any word that is the router's own. */
  | { op: 'ERR'; error: RouterError };

type Read = (reader: Reader) => BinaryAnswer;

const READERS: Record<RouterProtocol, Readonly<Record<string, Read>>> = {
  smp: {
    ...answersOf('SMP'),
    NID: (reader) => ({ op: 'NID', notifierId: idIn(reader, 'a notifier id'), routerDhKey: keyIn(reader) }),
    MSG(reader) {
      reader.rest();
      return { op: 'MSG' };
    },
    END: () => ({ op: 'END' }),
    DELD: () => ({ op: 'DELD' }),
  },
  ntf: {
    ...answersOf('NTF'),
    IDTKN: (reader) => ({ op: 'IDTKN', tokenId: idIn(reader, 'a token id'), routerDhKey: keyIn(reader) }),
    TKN: (reader) => ({ op: 'TKN', status: tokenStatusIn(reader) }),
    IDSUB: (reader) => ({ op: 'IDSUB', subscriptionId: idIn(reader, 'a subscription id') }),
    SUB: (reader) => ({ op: 'SUB', status: subscriptionStatusIn(reader) }),
  },
};

/** What routers of both kinds answer. */
function answersOf(source: 'NTF' | 'SMP'): Record<string, Read> {
  return {
    OK: () => ({ op: 'OK' }),
    PONG: () => ({ op: 'PONG' }),
    ERR: (reader) => ({ op: 'ERR', error: errorIn(reader, source) }),
  };
}

/** @throws MalformedError for what this protocol does not have. */
export function readAnswer(protocol: RouterProtocol, content: Buffer): BinaryAnswer {
  const space = content.indexOf(' ');
  const tag = content.toString('latin1', 0, space === -1 ? content.length : space);
  const read = Object.hasOwn(READERS[protocol], tag) ? READERS[protocol][tag] : undefined;
  if (!read) throw new MalformedError('an answer begins with no word of the protocol');
  const reader = new Reader(content.subarray(space === -1 ? content.length : space + 1));
  const answer = read(reader);
  reader.end('an answer');
  return answer;
}

/** What a router says in an error, as the protocol has it. */
const KNOWN_CODES: ReadonlySet<string> = new Set([
  ...['AUTH', 'BLOCK', 'BLOCKED', 'CMD', 'CRYPTO', 'EXPIRED', 'INTERNAL', 'LARGE_MSG', 'NO_MSG', 'QUOTA'],
  ...['SERVICE', 'SESSION', 'STORE'],
]);
const KNOWN_DETAILS: ReadonlySet<string> = new Set([
  ...['HAS_AUTH', 'NO_AUTH', 'NO_ENTITY', 'PROHIBITED', 'SYNTAX', 'UNKNOWN'],
]);

/**
 * An error of a router without anything that is not a word of the protocol: its own words may quote the request, keys
 * included, and errors stand in logs, rows, streams and histories. An unknown code is `UNKNOWN`, permanent as any.
 */
function errorIn(reader: Reader, source: 'NTF' | 'SMP'): RouterError {
  const [code = '', detail] = reader.rest().toString('latin1').split(' ', 2);
  return {
    source,
    code: KNOWN_CODES.has(code) ? code : 'UNKNOWN',
    ...(detail !== undefined && KNOWN_DETAILS.has(detail) ? { detail } : {}),
  };
}

function idIn(reader: Reader, what: string): Buffer {
  const id = reader.shortString(what);
  if (id.length < SHORTEST_ID || id.length > LONGEST_ID) {
    throw new MalformedError(`${what} has not ${SHORTEST_ID} to ${LONGEST_ID} bytes`);
  }
  return Buffer.from(id);
}

function keyIn(reader: Reader): RawKey {
  const key = rawPublicKeyIn('x25519', reader.shortString('a key'));
  if (!key) throw new MalformedError('a key is not one of X25519');
  return key;
}

function tokenStatusIn(reader: Reader): TokenStatus {
  const text = reader.rest().toString('latin1');
  const status = TOKEN_STATUSES.find((known) => known === text);
  if (!status) throw new MalformedError('the status of a token is unknown to the protocol');
  return status;
}

const SUBSCRIPTION_STATUSES: ReadonlySet<string> = new Set([
  ...['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE', 'END', 'DELETED', 'AUTH'],
]);

function subscriptionStatusIn(reader: Reader): string {
  const text = reader.rest().toString('latin1');
  if (SUBSCRIPTION_STATUSES.has(text)) return text;
  if (!text.startsWith('ERR '))
    throw new MalformedError('the status of a subscription is unknown to the protocol');
  // With its length before it or without: routers do either.
  const reason = text.slice('ERR '.length).replace(/[^\x20-\x7e]/g, '');
  return `ERR ${reason.slice(0, MOST_REASON_CHARACTERS)}`;
}

/** What routers answer, and what messaging routers say without being asked. */
import { TOKEN_STATUSES } from '../../../../api/subscription/router-wire.ts';
import type { RouterProtocol } from '../../../../api/subscription/router-wire.ts';
import { withoutOwnWords } from '../errors.ts';
import type { RawKey, RouterError, RouterSubscriptionStatus, TokenStatus } from '../ports.ts';
import { rawPublicKeyIn } from '../signing.ts';
import { MalformedError, Reader } from './encoding.ts';
import { SMP_SENDER_SECURES } from './versions.ts';

/** Bytes of the ids that routers give. */
const SHORTEST_ID = 16;
const LONGEST_ID = 24;
/** Of what a messaging router is said to have answered to a notification router. */
const MOST_REASON_CHARACTERS = 200;

export type SmpAnswer =
  | {
      op: 'IDS';
      recipientId: Buffer;
      senderId: Buffer;
      routerDhKey: RawKey;
      senderMaySecure: boolean;
    }
  | { op: 'NID'; notifierId: Buffer; routerDhKey: RawKey }
  /** A message; also the answer to SUB when one waits. Encrypted for the recipient. */
  | { op: 'MSG'; messageId: Buffer; body: Buffer }
  /** Somebody else has subscribed; or the queue or its notifier is deleted. */
  | { op: 'END' | 'DELD' };

export type NtfAnswer =
  | { op: 'IDTKN'; tokenId: Buffer; routerDhKey: RawKey }
  | { op: 'TKN'; status: TokenStatus }
  | { op: 'IDSUB'; subscriptionId: Buffer }
  | { op: 'SUB'; status: RouterSubscriptionStatus };

export type BinaryAnswer =
  | SmpAnswer
  | NtfAnswer
  | { op: 'OK' | 'PONG' }
  /** Without any word that is the router's own. */
  | { op: 'ERR'; error: RouterError };

type Read = (reader: Reader, version: number) => BinaryAnswer;

const READERS: Record<RouterProtocol, ReadonlyMap<string, Read>> = {
  smp: new Map<string, Read>([
    [
      'IDS',
      (reader, version) => ({
        op: 'IDS',
        recipientId: idIn(reader, 'a recipient id'),
        senderId: idIn(reader, 'a sender id'),
        routerDhKey: keyIn(reader),
        senderMaySecure: version >= SMP_SENDER_SECURES && flagIn(reader),
      }),
    ],
    [
      'NID',
      (reader) => ({ op: 'NID', notifierId: idIn(reader, 'a notifier id'), routerDhKey: keyIn(reader) }),
    ],
    ['MSG', (reader) => ({ op: 'MSG', messageId: idIn(reader, 'a message id'), body: reader.rest() })],
    ['END', () => ({ op: 'END' })],
    ['DELD', () => ({ op: 'DELD' })],
    ...common('SMP'),
  ]),
  ntf: new Map<string, Read>([
    ['IDTKN', (reader) => ({ op: 'IDTKN', tokenId: idIn(reader, 'a token id'), routerDhKey: keyIn(reader) })],
    ['TKN', (reader) => ({ op: 'TKN', status: tokenStatusIn(reader) })],
    ['IDSUB', (reader) => ({ op: 'IDSUB', subscriptionId: idIn(reader, 'a subscription id') })],
    ['SUB', (reader) => ({ op: 'SUB', status: subscriptionStatusIn(reader) })],
    ...common('NTF'),
  ]),
};

/** @throws MalformedError for what this protocol does not have. */
export function readAnswer(protocol: RouterProtocol, content: Buffer, version: number): BinaryAnswer {
  const space = content.indexOf(' ');
  const tag = content.toString('latin1', 0, space === -1 ? content.length : space);
  const read = READERS[protocol].get(tag);
  if (!read) throw new MalformedError('an answer begins with no word of the protocol');
  const reader = new Reader(content.subarray(space === -1 ? content.length : space + 1));
  const answer = read(reader, version);
  reader.end('an answer');
  return answer;
}

function common(source: 'NTF' | 'SMP'): [string, Read][] {
  return [
    ['OK', () => ({ op: 'OK' })],
    ['PONG', () => ({ op: 'PONG' })],
    ['ERR', (reader) => ({ op: 'ERR', error: errorIn(reader, source) })],
  ];
}

/** What follows the first two words is of no matter to anybody here, or the router's own. */
function errorIn(reader: Reader, source: 'NTF' | 'SMP'): RouterError {
  const [code = '', detail] = reader.rest().toString('latin1').split(' ', 2);
  return withoutOwnWords(source, { code, detail });
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

function flagIn(reader: Reader): boolean {
  const flag = reader.take(1, 'a flag').toString('latin1');
  if (flag !== 'T' && flag !== 'F') throw new MalformedError('a flag is neither T nor F');
  return flag === 'T';
}

function tokenStatusIn(reader: Reader): TokenStatus {
  const text = reader.rest().toString('latin1');
  const status = TOKEN_STATUSES.find((known) => known === text);
  if (!status) throw new MalformedError('the status of a token is none that the protocol has');
  return status;
}

const SUBSCRIPTION_STATUSES: ReadonlySet<string> = new Set([
  ...['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE', 'END', 'DELETED', 'AUTH'],
]);

function subscriptionStatusIn(reader: Reader): RouterSubscriptionStatus {
  const text = reader.rest().toString('latin1');
  if (SUBSCRIPTION_STATUSES.has(text)) return text;
  if (!text.startsWith('ERR '))
    throw new MalformedError('the status of a subscription is none that there is');
  // With its length before it or without: routers do either.
  const reason = text.slice('ERR '.length).replace(/[^\x20-\x7e]/g, '');
  return `ERR ${reason.slice(0, MOST_REASON_CHARACTERS)}`;
}

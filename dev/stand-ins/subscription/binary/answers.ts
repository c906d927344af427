/** Answers of the rules, and what routers say unasked, written in the binary protocol. */
import type { NtfAnswer, SessionEvent } from '../protocol.ts';
import type { MessagingAnswer } from '../messaging-rules.ts';
import { nameOf } from '../router-rules.ts';
import { short } from './bytes.ts';
import { writeDhKey } from './keys.ts';

/** A version from which on a subscriber hears that its queue, or notifier, is gone. */
const VERSION_WITH_DELETED = 10;

/** Any answer, also one that no router gives. */
export function writeAnswer(answer: MessagingAnswer | NtfAnswer): Buffer {
  switch (answer.op) {
    case 'IDS': {
      const { recipientId, senderId, routerDhKey = '', senderMaySecure } = answer;
      const ids = [id(recipientId), id(senderId), dhKey(routerDhKey)];
      const secures = senderMaySecure === undefined ? '' : senderMaySecure ? 'T' : 'F';
      return Buffer.concat([Buffer.from('IDS '), ...ids, Buffer.from(secures)]);
    }
    case 'NID':
      return Buffer.concat([Buffer.from('NID '), id(answer.notifierId), dhKey(answer.routerDhKey)]);
    case 'MSG':
      return writeMessage(answer);
    case 'IDTKN':
      return Buffer.concat([Buffer.from('IDTKN '), id(answer.tokenId), dhKey(answer.routerDhKey)]);
    case 'TKN':
      return Buffer.from(`TKN ${answer.status}`);
    case 'IDSUB':
      return Buffer.concat([Buffer.from('IDSUB '), id(answer.subscriptionId)]);
    case 'SUB':
      return Buffer.from(`SUB ${answer.status}`);
    case 'OK':
    case 'PONG':
    case 'ERR':
    default:
      return Buffer.from(nameOf(answer));
  }
}

/**
 * What happens to the queue, or notifier, that the transmission names.
 *
 * @returns undefined for what the version does not know.
 */
export function writeEvent(event: SessionEvent, version: number): Buffer | undefined {
  switch (event.event) {
    case 'NMSG': {
      const { nonce, content } = event.meta;
      const sealed = Buffer.from(content, 'base64url');
      return Buffer.concat([Buffer.from('NMSG '), Buffer.from(nonce, 'base64url'), short(sealed)]);
    }
    case 'MSG':
      return writeMessage(event);
    case 'END':
      return Buffer.from('END');
    case 'DELD':
      return version >= VERSION_WITH_DELETED ? Buffer.from('DELD') : undefined;
  }
}

/** Of what an event is about, base64url. */
export function entityOf(event: SessionEvent): string {
  switch (event.event) {
    case 'NMSG':
      return event.notifierId;
    case 'MSG':
      return event.recipientId;
    case 'END':
    case 'DELD':
      return event.entity;
  }
}

function writeMessage({ messageId, body }: { messageId: string; body: string }): Buffer {
  return Buffer.concat([Buffer.from('MSG '), id(messageId), Buffer.from(body, 'base64url')]);
}

const id = (value: string): Buffer => short(Buffer.from(value, 'base64url'));
const dhKey = (raw: string): Buffer => short(writeDhKey(Buffer.from(raw, 'base64url')));

/** What a device reads in pushes about messages, in whichever way its routers speak. */
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { parseBinaryAddress } from '../../api/subscription/router-address.ts';
import type { PushData } from '../../dev/stand-ins/subscription/push-sink.ts';
import { MalformedError } from '../../activities/subscription/router/binary/encoding.ts';
import { openItems, openMeta } from '../../dev/live-routers/pushes.ts';
import { unbox } from '../../activities/subscription/router/signing.ts';
import { messageMetaSchema, pushedMessageSchema } from '../../api/subscription/router-wire.ts';

/** That a message is in the queue with this notifier. */
export interface PushedNotice {
  host: string;
  port: number;
  notifierId: string;
  /** @returns undefined when it is for another secret; the time in epoch ms. */
  open(queueSecret: Buffer): { messageId: string; at: number } | undefined;
}

/** Binary routers tell time in seconds. */
export const toldTimeOf = ({ transport }: RouterAddress, at: number): number =>
  transport === 'binary' ? Math.floor(at / 1_000) * 1_000 : at;

/** @returns undefined when the push is not for a token with this secret. */
export function noticesIn(
  { transport }: RouterAddress,
  push: PushData,
  tokenSecret: Buffer,
): PushedNotice[] | undefined {
  return transport === 'binary' ? binaryNotices(push, tokenSecret) : httpsNotices(push, tokenSecret);
}

function binaryNotices(push: PushData, tokenSecret: Buffer): PushedNotice[] | undefined {
  const items = unlessMalformed(() => openItems(push, tokenSecret));
  return items?.map((item) => ({
    ...parseBinaryAddress(item.router),
    notifierId: item.notifierId,
    open(queueSecret) {
      const meta = unlessMalformed(() => openMeta(item, queueSecret));
      return meta && { messageId: meta.messageId, at: meta.at.getTime() };
    },
  }));
}

function unlessMalformed<Value>(read: () => Value): Value | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}

function httpsNotices(
  { nonce = '', message = '' }: PushData,
  tokenSecret: Buffer,
): PushedNotice[] | undefined {
  const list = unbox({ nonce, content: message }, tokenSecret, 'message-list');
  const messages = list && pushedMessageSchema.array().parse(JSON.parse(list.toString('utf8')));
  return messages?.map(({ host, port, notifierId, meta }) => ({
    ...{ host, port, notifierId },
    open(queueSecret) {
      const plain = unbox(meta, queueSecret, 'message-meta');
      return plain && messageMetaSchema.parse(JSON.parse(plain.toString('utf8')));
    },
  }));
}

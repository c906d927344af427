/** What a device reads in pushes about messages. */
import { parseBinaryAddress } from '../../api/subscription/router-address.ts';
import type { PushData } from '../../dev/stand-ins/subscription/push-sink.ts';
import { MalformedError } from '../../activities/subscription/router/blocks.ts';
import { openItems, openMeta } from '../../dev/live-routers/pushes.ts';

/** That a message is in the queue with this notifier. */
export interface PushedNotice {
  host: string;
  port: number;
  notifierId: string;
  /** @returns undefined when it is for another secret; the time in epoch ms. */
  open(queueSecret: Buffer): { messageId: string; at: number } | undefined;
}

/** Routers tell time in seconds. */
export const toldTimeOf = (at: number): number => Math.floor(at / 1_000) * 1_000;

/** @returns undefined when the push is not for a token with this secret. */
export function noticesIn(push: PushData, tokenSecret: Buffer): PushedNotice[] | undefined {
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

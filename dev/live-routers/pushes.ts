/** What a device finds in pushes of official routers: boxes of padded content, lists of what messages have come. */
import { MalformedError, Reader, unpadBlock } from '../../activities/subscription/router/blocks.ts';
import { BOX_NONCE_BYTES, openBox } from '../../activities/subscription/router/keys.ts';

/** One item of a push: that a message is in the queue with this notifier. */
export interface PushedItem {
  /** As the router writes it: scheme, fingerprint, hosts and perhaps a port. */
  router: string;
  /** base64url. */
  notifierId: string;
  at: Date;
  nonce: string;
  /** For the recipient of the queue alone. */
  meta: string;
}

export interface MessageMeta {
  /** base64url. */
  messageId: string;
  at: Date;
}

/** Newest routers put several items into a push, older ones one. */
const BETWEEN_ITEMS = ';';
const ITEM = /^(?<router>smp:\/\/[^/ ]+)\/(?<id>[\w=-]+) (?<at>\d+) (?<nonce>[\w=-]+) (?<meta>[\w=-]+)$/;
const TIMESTAMP_BYTES = 8;
const SECOND_MS = 1_000;

/** @throws MalformedError when the push was not sealed with this secret, or is written in another way. */
export function openItems(push: { nonce?: string; message?: string }, tokenSecret: Buffer): PushedItem[] {
  const list = openPadded(push.message ?? '', push.nonce ?? '', tokenSecret).toString('latin1');
  return list.split(BETWEEN_ITEMS).map((text) => {
    const { router, id, at, nonce, meta } = ITEM.exec(text)?.groups ?? {};
    if (!router || !id || !nonce || !meta) throw new MalformedError('an item of a push is no item');
    return {
      router,
      notifierId: Buffer.from(id, 'base64url').toString('base64url'),
      ...{ at: new Date(Number(at) * SECOND_MS), nonce, meta },
    };
  });
}

/** @throws MalformedError as `openItems`. */
export function openMeta({ nonce, meta }: PushedItem, queueSecret: Buffer): MessageMeta {
  // Later routers may say more.
  const reader = new Reader(openPadded(meta, nonce, queueSecret));
  const messageId = reader.shortString('the id of a message').toString('base64url');
  const seconds = reader.take(TIMESTAMP_BYTES, 'the time of a message').readBigInt64BE();
  return { messageId, at: new Date(Number(seconds) * SECOND_MS) };
}

function openPadded(content: string, nonce: string, secret: Buffer): Buffer {
  const nonceBytes = Buffer.from(nonce, 'base64url');
  const opened =
    nonceBytes.length === BOX_NONCE_BYTES
      ? openBox(Buffer.from(content, 'base64url'), secret, nonceBytes)
      : undefined;
  if (!opened) throw new MalformedError('a box does not open with the secret that was agreed');
  return unpadBlock(opened);
}

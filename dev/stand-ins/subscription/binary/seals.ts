/** What binary routers encrypt for recipients and devices: boxes of padded content, so that lengths say nothing. */
import { randomBytes } from 'node:crypto';
import type { Boxed } from '../protocol.ts';
import type { MessageSeals, PushSeals } from '../transport.ts';
import { NONCE_BYTES, seal } from './box.ts';
import { pad, short, timestamp } from './bytes.ts';

const META_BYTES = 128;
const BODY_BYTES = 16_106;
const PUSH_BYTES = 3_072;

export const MESSAGE_SEALS: MessageSeals = {
  meta({ messageId, at }, secret) {
    const plain = Buffer.concat([short(Buffer.from(messageId, 'base64url')), timestamp(at)]);
    const nonce = randomBytes(NONCE_BYTES);
    const sealed = seal(pad(plain, META_BYTES), Buffer.from(secret, 'base64url'), nonce);
    return { nonce: nonce.toString('base64url'), content: sealed.toString('base64url') };
  },
  body({ messageId, body, at, notify }, secret = '') {
    const flags = Buffer.from(`${notify ? 'T' : 'F'} `);
    const plain = Buffer.concat([timestamp(at), flags, Buffer.from(body, 'latin1')]);
    // The id is the nonce.
    const nonce = Buffer.from(messageId, 'base64url');
    return seal(pad(plain, BODY_BYTES), Buffer.from(secret, 'base64url'), nonce).toString('base64url');
  },
};

export const PUSH_SEALS: PushSeals = {
  code: (code, secret) => sealPush(Buffer.from(code, 'base64url'), secret),
  messages(newest, secret) {
    const items = newest.map(({ router: { host, port, keyHash }, last: { notifierId, at, meta } }) =>
      [
        `smp://${padded(keyHash)}@${host}:${port}/${padded(notifierId)}`,
        Math.floor(at / 1_000),
        padded(meta.nonce),
        padded(meta.content),
      ].join(' '),
    );
    return sealPush(Buffer.from(items.join(';')), secret);
  },
};

function sealPush(plain: Buffer, secret: string): Boxed {
  const nonce = randomBytes(NONCE_BYTES);
  const sealed = seal(pad(plain, PUSH_BYTES), Buffer.from(secret, 'base64url'), nonce);
  return { nonce: padded(nonce.toString('base64url')), content: padded(sealed.toString('base64url')) };
}

/** Base64url as routers write it in pushes: filled up with `=`. */
function padded(base64url: string): string {
  return base64url.padEnd(Math.ceil(base64url.length / 4) * 4, '=');
}

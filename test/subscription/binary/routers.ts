/** Binary routers for tests, with queues and tokens on them. */
import { randomBytes } from 'node:crypto';
import type { MessagingRouterOptions } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { startNotificationRouter } from '../../../dev/stand-ins/subscription/notification-router.ts';
import { startPushSink } from '../../../dev/stand-ins/subscription/push-sink.ts';
import { eventually } from '../../eventually.ts';
import type { BinaryClient, ClientOptions, Keys } from './client.ts';
import { agree, cut, join, newKeys, openClient, openPadded, sized } from './client.ts';

export type BinaryRouters = Awaited<ReturnType<typeof startBinaryRouters>>;

export interface Queue {
  recipient: Keys;
  recipientId: Buffer;
  senderId: Buffer;
  /** For the bodies of messages. */
  secret: Buffer;
}

export interface QueueNotifier {
  keys: Keys;
  notifierId: Buffer;
  secret: Buffer;
}

export interface Token {
  keys: Keys;
  /** Hex. */
  device: string;
  tokenId: Buffer;
  secret: Buffer;
}

/** One router of each kind. */
export async function startBinaryRouters(smpOptions: MessagingRouterOptions = {}) {
  const sink = await startPushSink();
  const smp = await startMessagingRouter({ ...smpOptions });
  const ntf = await startNotificationRouter({ pushUrl: sink.url });
  const clients: BinaryClient[] = [];

  async function client(
    protocol: 'smp' | 'ntf',
    options: Partial<ClientOptions> = {},
  ): Promise<BinaryClient> {
    const { address } = protocol === 'smp' ? smp : ntf;
    const opened = await openClient(address, { protocol, ...options });
    clients.push(opened);
    return opened;
  }

  return {
    sink,
    smp,
    ntf,
    client,
    /** TNEW, and TVFY with the pushed code. */
    async makeToken(by: BinaryClient): Promise<Token> {
      const device = randomBytes(16).toString('hex');
      const [keys, dh] = [newKeys('ed25519'), newKeys('x25519')];
      const [answer] = await by.send({
        content: join('TNEW TAT', sized(device), sized(keys.publicDer), sized(dh.publicDer)),
        keys,
      });
      const [tokenId, rest] = cut(after('IDTKN ', answer!));
      const secret = agree(cut(rest)[0], dh);
      const push = await eventually('the verification push', async () =>
        sink.pushes.find(({ token, kind }) => token === device && kind === 'verification'),
      );
      const code = openPadded(...boxOf(push.data.verification!, push.data.nonce!, secret));
      expect(await by.send({ content: join('TVFY ', sized(code)), entity: tokenId, keys })).toEqual([OK]);
      return { keys, device, tokenId, secret };
    },
    /** SNEW, for a notifier on the messaging router. @returns the id of the subscription. */
    async subscribe(by: BinaryClient, { tokenId, keys }: Token, notifier: QueueNotifier): Promise<Buffer> {
      const { host, port, keyHash } = smp.address;
      const [answer] = await by.send({
        content: join(
          'SNEW S',
          sized(tokenId),
          Buffer.from([1]),
          sized(host),
          sized(String(port)),
          sized(Buffer.from(keyHash, 'base64url')),
          sized(notifier.notifierId),
          sized(notifier.keys.privateKey.export({ type: 'pkcs8', format: 'der' })),
        ),
        keys,
      });
      return cut(after('IDSUB ', answer!))[0];
    },
    async stop() {
      await Promise.all(clients.map((one) => one.close()));
      await ntf.stop();
      await Promise.all([smp.stop(), sink.stop()]);
    },
  };
}

export const OK = Buffer.from('OK');
export const AUTH = Buffer.from('ERR AUTH');

/** What follows in an answer that begins so. */
export function after(begin: string, content: Buffer): Buffer {
  expect(content.subarray(0, begin.length).toString('latin1')).toBe(begin);
  return content.subarray(begin.length);
}

/** As routers write it in pushes. */
export const boxOf = (
  content: string,
  nonce: string,
  secret: Buffer,
): [sealed: Buffer, secret: Buffer, nonce: Buffer] => [
  Buffer.from(content, 'base64url'),
  secret,
  Buffer.from(nonce, 'base64url'),
];

/** NEW, in versions 9 and later. */
export async function makeQueue(
  by: BinaryClient,
  {
    recipient = newKeys('ed25519'),
    password = '0',
    flags = 'CF',
  }: { recipient?: Keys; password?: Buffer | string; flags?: string } = {},
): Promise<Queue> {
  const dh = newKeys('x25519');
  const [answer] = await by.send({
    content: join('NEW ', sized(recipient.publicDer), sized(dh.publicDer), password, flags),
    keys: recipient,
  });
  const [recipientId, afterRecipient] = cut(after('IDS ', answer!));
  const [senderId, afterSender] = cut(afterRecipient);
  const [routerKey, secures] = cut(afterSender);
  expect(secures.toString('latin1')).toBe(flags.slice(1));
  return { recipient, recipientId, senderId, secret: agree(routerKey, dh) };
}

/** NKEY. */
export async function makeNotifier(
  by: BinaryClient,
  { recipient, recipientId }: Queue,
  keys = newKeys('ed25519'),
): Promise<QueueNotifier> {
  const dh = newKeys('x25519');
  const [answer] = await by.send({
    content: join('NKEY ', sized(keys.publicDer), sized(dh.publicDer)),
    entity: recipientId,
    keys: recipient,
  });
  const [notifierId, rest] = cut(after('NID ', answer!));
  return { keys, notifierId, secret: agree(cut(rest)[0], dh) };
}

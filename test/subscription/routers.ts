/** Routers and a push provider for tests, and what tests say to them directly. */
import {
  generateAuthKeys,
  generateDhKeys,
  signCommand,
  unbox,
} from '../../activities/subscription/router/signing.ts';
import { createRouterConnections } from '../../activities/subscription/router/connection.ts';
import type {
  KeyPair,
  NotificationRouter,
  PushSecret,
  RouterAddress,
} from '../../activities/subscription/router/ports.ts';
import type {
  MessageMeta,
  PushedMessage,
  RouterCommand,
  RouterProtocol,
  SessionEvent,
} from '../../api/subscription/router-wire.ts';
import {
  OLDEST_VERSION,
  SESSION_PATH,
  commandsPath,
  messageMetaSchema,
  pushedMessageSchema,
  sessionEventSchema,
} from '../../api/subscription/router-wire.ts';
import type {
  MessagingRouterOptions,
  MessagingRouterStandIn,
} from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { PushSinkStandIn, RecordedDevicePush } from '../../dev/stand-ins/subscription/push-sink.ts';
import { startPushSink } from '../../dev/stand-ins/subscription/push-sink.ts';
import { BINARY } from '../../dev/stand-ins/subscription/binary/transport.ts';
import type { RouterTransport } from '../../dev/stand-ins/subscription/transport.ts';
import { eventually } from '../eventually.ts';

export interface Routers {
  smp: MessagingRouterStandIn[];
  ntf: NotificationRouterStandIn[];
  sink: PushSinkStandIn;
  stop(): Promise<void>;
}

/** @param options how many, in which way they speak, and which newest version. */
export async function startRouters(
  options: {
    smp?: number;
    ntf?: number;
    transport?: RouterTransport;
    smpOptions?: MessagingRouterOptions;
    ntfVersion?: number;
  } = {},
): Promise<Routers> {
  const { smp: smpCount = 1, ntf: ntfCount = 1, transport = BINARY, smpOptions = {}, ntfVersion } = options;
  const sink = await startPushSink();
  const smp = await Promise.all(
    Array.from({ length: smpCount }, () => startMessagingRouter({ transport, ...smpOptions })),
  );
  const ntf = await Promise.all(
    Array.from({ length: ntfCount }, () =>
      startNotificationRouter({
        transport,
        pushUrl: sink.url,
        ...(ntfVersion === undefined ? {} : { version: ntfVersion }),
      }),
    ),
  );
  return {
    smp,
    ntf,
    sink,
    async stop() {
      await Promise.all(ntf.map((router) => router.stop()));
      await Promise.all([...smp.map((router) => router.stop()), sink.stop()]);
    },
  };
}

/** A command as it is sent, right or wrong. */
export interface RawCommand {
  entity?: string;
  command: { op: string } & Record<string, unknown>;
  /** Without one it goes unsigned. */
  privateKey?: Buffer;
}

export type RawAnswer = { op: string; error?: { code: string; detail?: string } } & Record<string, unknown>;

/** Speaks to a router without the adapter, in one session if wanted. */
export async function openRawClient(protocol: RouterProtocol, address: RouterAddress) {
  const connections = createRouterConnections({ connectTimeoutMs: 5_000 });
  const events: SessionEvent[] = [];
  let session: string | undefined;
  return {
    events,
    /** Opens a session, whose events come in `events`. */
    async openSession(): Promise<void> {
      void connections.exchange('session', address, {
        method: 'GET',
        path: SESSION_PATH,
        timeoutMs: 2 ** 31 - 1,
        maxBytes: Number.POSITIVE_INFINITY,
        onLine: (line) => {
          const event = sessionEventSchema.parse(JSON.parse(line));
          if (event.event === 'SESSION') session = event.session;
          else events.push(event);
        },
      });
      await eventually('the session to open', async () => session);
    },
    async send(...commands: RawCommand[]): Promise<RawAnswer[]> {
      const block = commands.map(({ entity, command, privateKey }, index) => {
        const content = {
          id: String(index),
          ...(entity === undefined ? {} : { entity }),
          command: command as unknown as RouterCommand,
        };
        if (!privateKey) return content;
        return { ...content, signature: signCommand({ router: address.keyHash, ...content }, privateKey) };
      });
      const answers: RawAnswer[] = [];
      const error = await connections.exchange('commands', address, {
        method: 'POST',
        path: commandsPath(protocol),
        body: JSON.stringify({
          version: OLDEST_VERSION[protocol] + (protocol === 'ntf' ? 2 : 11),
          ...(session === undefined ? {} : { session }),
          blocks: block.map((command) => [command]),
        }),
        timeoutMs: 10_000,
        maxBytes: 1_000_000,
        onLine: (line) => {
          const { id, answer } = JSON.parse(line) as { id: string; answer: RawAnswer };
          answers[Number(id)] = answer;
        },
      });
      if (error) throw new Error(JSON.stringify(error));
      return answers;
    },
    close: () => connections.close(),
  };
}

export type RawClient = Awaited<ReturnType<typeof openRawClient>>;

/** Keys of a recipient for one queue. */
export interface QueueKeys {
  recipient: KeyPair;
  notifier: KeyPair;
  dh: KeyPair;
}

export const newQueueKeys = (): QueueKeys => ({
  recipient: generateAuthKeys(),
  notifier: generateAuthKeys(),
  dh: generateDhKeys(),
});

export const base64url = (bytes: Buffer): string => bytes.toString('base64url');

/** The code in a verification push, over whichever protocol the router speaks. */
export const codeOf = (
  router: Pick<NotificationRouter, 'openVerification'>,
  token: PushSecret,
  { data: { nonce = '', verification = '' } }: RecordedDevicePush,
): Buffer | undefined => router.openVerification(token, { nonce, content: verification });

/** What a message push says, newest first. */
export function messagesIn({ data }: RecordedDevicePush, tokenSecret: Buffer): PushedMessage[] {
  const plain = unbox({ nonce: data.nonce ?? '', content: data.message ?? '' }, tokenSecret, 'message-list');
  if (!plain) throw new Error('the push does not open with this secret');
  return pushedMessageSchema.array().parse(JSON.parse(plain.toString('utf8')));
}

export function metaIn({ meta }: PushedMessage, queueSecret: Buffer): MessageMeta | undefined {
  const plain = unbox(meta, queueSecret, 'message-meta');
  return plain && messageMetaSchema.parse(JSON.parse(plain.toString('utf8')));
}

/** Pushes of a kind to a device so far. */
export function pushesTo(
  sink: PushSinkStandIn,
  token: string,
  kind: RecordedDevicePush['kind'],
): RecordedDevicePush[] {
  return sink.pushes.filter((push) => push.token === token && push.kind === kind);
}

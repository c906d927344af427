/**
 * A stand-in for a messaging router (SMP): queues with their notifiers, messages, and sessions in which recipients get
 * messages and notification routers learn that one arrived. Signatures are checked, answers and failures are those of
 * a real one; what can be read and set from outside is in router-server.ts, and here:
 *
 * ```
 * POST /_send     {"senderId", "body", "notify"?}   sends a message to a queue
 * ```
 */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import {
  box,
  dhSecret,
  generateDhKeys,
  isSignedBy,
} from '../../../activities/subscription/router/signing.ts';
import type {
  SentCommand,
  SessionEvent,
  SmpAnswer,
  SmpCommand,
} from '../../../api/subscription/router-wire.ts';
import { SESSION_PATH, SMP_COMMANDS } from '../../../api/subscription/router-wire.ts';
import { assertPortFree, PORT_VARIABLES } from '../../servers/ports.ts';
import { openRouterDataFile } from './data-file.ts';
import type { CommandContext, Credentials, RouterStandIn } from './router-server.ts';
import { Refusal, answerOr, checkCommand, sendJson, startRouterServer } from './router-server.ts';

type Notification = Extract<SessionEvent, { event: 'NMSG' }>;

/** Binary values are base64url. */
export interface StoredQueue {
  recipientId: string;
  senderId: string;
  recipientKey: string;
  notifier?: StoredNotifier;
  messages: { messageId: string; body: string; at: number }[];
}

interface StoredNotifier {
  notifierId: string;
  notifierKey: string;
  /** Agreed with the recipient: what a notification says about its message is for nobody else. */
  secret: string;
  /** Not delivered yet. */
  waiting: Notification[];
}

export interface MessagingRouterStandIn extends RouterStandIn {
  queues(): StoredQueue[];
  /** Ids of queues (their recipients') and notifiers that a session is subscribed to. */
  subscribed(): string[];
  /** Sends a message; `notify` false is one that its sender wants no notification for. @throws Error for no queue. */
  send(senderId: string, body: string, notify?: boolean): { messageId: string; at: number };
}

export interface MessagingRouterOptions {
  /** Loopback port; default 0: a free one. */
  port?: number;
  /** Newest protocol version; below 17 a queue is made without a notifier. */
  version?: number;
  /** Keeps certificate and queues across restarts of the process. */
  dataFile?: string;
}

const CREDENTIALS: Record<keyof typeof SMP_COMMANDS, Credentials> = {
  NEW: 'signature',
  NKEY: 'signature and entity',
  NDEL: 'signature and entity',
  DEL: 'signature and entity',
  SUB: 'signature and entity',
  GET: 'signature and entity',
  ACK: 'signature and entity',
  SEND: 'entity',
  NSUB: 'signature and entity',
  PING: 'none',
};

/** Notifications that are kept for a notifier to which nobody is subscribed; the oldest go first. */
const MAX_WAITING = 100;

/** Starts the stand-in on 127.0.0.1. @throws Error when the port is taken. */
export async function startMessagingRouter(
  options: MessagingRouterOptions = {},
): Promise<MessagingRouterStandIn> {
  const { port = 0, version } = options;
  if (port !== 0) await assertPortFree(port, 'stand-in messaging router', PORT_VARIABLES.routers);
  const file = await openRouterDataFile<StoredQueue[]>(options.dataFile);
  const queues = new Map((file.state ?? []).map((queue) => [queue.recipientId, queue]));
  const sessions = new Map<string, ServerResponse>();
  /** Session that gets what happens to a queue (by its recipient's id) or a notifier. */
  const subscribers = new Map<string, string>();

  const save = (): void => file.save(() => [...queues.values()]);
  const queueOf = (field: 'senderId', id: string): StoredQueue | undefined =>
    [...queues.values()].find((queue) => queue[field] === id);
  const queueOfNotifier = (id: string): StoredQueue | undefined =>
    [...queues.values()].find(({ notifier }) => notifier?.notifierId === id);

  /** @returns whether anybody was told. */
  function tell(subject: string, event: SessionEvent): boolean {
    const session = sessions.get(subscribers.get(subject) ?? '');
    session?.write(`${JSON.stringify(event)}\n`);
    return session !== undefined;
  }

  function subscribe(subject: string, session: string | undefined): void {
    if (session === undefined || !sessions.has(session)) throw new Refusal('CMD', 'PROHIBITED');
    const before = subscribers.get(subject);
    if (before !== undefined && before !== session) tell(subject, { event: 'END', entity: subject });
    subscribers.set(subject, session);
  }

  function removeNotifier(queue: StoredQueue): void {
    if (!queue.notifier) return;
    const { notifierId } = queue.notifier;
    delete queue.notifier;
    tell(notifierId, { event: 'DELD', entity: notifierId });
    subscribers.delete(notifierId);
  }

  /** Another notifier each time, also for the same key. */
  function addNotifier(queue: StoredQueue, { notifierKey, recipientDhKey }: NotifierKeys) {
    removeNotifier(queue);
    const dh = generateDhKeys();
    const secret = dhSecret(Buffer.from(recipientDhKey, 'base64url'), dh.privateKey).toString('base64url');
    const notifierId = newId();
    queue.notifier = { notifierId, notifierKey, secret, waiting: [] };
    return { notifierId, routerDhKey: dh.publicKey.toString('base64url') };
  }

  function deliverNotifications({ notifier }: StoredQueue): void {
    while (notifier?.waiting[0] && tell(notifier.notifierId, notifier.waiting[0])) notifier.waiting.shift();
  }

  function deliverMessage({ recipientId, messages: [message] }: StoredQueue): void {
    if (message) tell(recipientId, { event: 'MSG', recipientId, ...message });
  }

  function send(queue: StoredQueue, body: string, notify: boolean): { messageId: string; at: number } {
    const message = { messageId: newId(), body, at: Date.now() };
    queue.messages.push(message);
    if (queue.messages.length === 1) deliverMessage(queue);
    const { notifier } = queue;
    if (notifier && notify) {
      const { messageId, at } = message;
      const plain = Buffer.from(JSON.stringify({ messageId, at }));
      const meta = box(plain, Buffer.from(notifier.secret, 'base64url'), 'message-meta');
      notifier.waiting.push({ event: 'NMSG', notifierId: notifier.notifierId, at, meta });
      if (notifier.waiting.length > MAX_WAITING) notifier.waiting.shift();
      deliverNotifications(queue);
    }
    save();
    return message;
  }

  function execute(sent: SentCommand, { keyHash, session }: CommandContext): SmpAnswer {
    const command = checkCommand(SMP_COMMANDS, CREDENTIALS, sent);
    const { id, entity = '', signature = '' } = sent;
    const isSignedWith = (key: string): boolean =>
      isSignedBy(
        { router: keyHash, id, entity: sent.entity, command },
        signature,
        Buffer.from(key, 'base64url'),
      );
    /** The queue of a command of its recipient. */
    const own = (): StoredQueue => {
      const queue = queues.get(entity);
      if (!queue || !isSignedWith(queue.recipientKey)) throw new Refusal('AUTH');
      return queue;
    };
    switch (command.op) {
      case 'PING':
        return { op: 'PONG' };
      case 'NEW': {
        if (!isSignedWith(command.recipientKey)) throw new Refusal('AUTH');
        const { recipientKey } = command;
        const queue: StoredQueue = { recipientId: newId(), senderId: newId(), recipientKey, messages: [] };
        queues.set(queue.recipientId, queue);
        const { recipientId, senderId } = queue;
        const notifier = command.notifier && addNotifier(queue, command.notifier);
        return { op: 'IDS', recipientId, senderId, ...(notifier ? { notifier } : {}) };
      }
      case 'NKEY':
        return { op: 'NID', ...addNotifier(own(), command) };
      case 'NDEL':
        removeNotifier(own());
        return { op: 'OK' };
      case 'DEL': {
        const queue = own();
        removeNotifier(queue);
        queues.delete(queue.recipientId);
        subscribers.delete(queue.recipientId);
        return { op: 'OK' };
      }
      case 'SUB': {
        const queue = own();
        subscribe(queue.recipientId, session);
        deliverMessage(queue);
        return { op: 'OK' };
      }
      case 'GET': {
        const queue = own();
        // Who is subscribed gets its messages in the session.
        if (session !== undefined && subscribers.get(queue.recipientId) === session) {
          throw new Refusal('CMD', 'PROHIBITED');
        }
        const [message] = queue.messages;
        return message ? { op: 'MSG', ...message } : { op: 'OK' };
      }
      case 'ACK': {
        const queue = own();
        if (queue.messages[0]?.messageId !== command.messageId) throw new Refusal('NO_MSG');
        queue.messages.shift();
        deliverMessage(queue);
        return { op: 'OK' };
      }
      case 'SEND': {
        const queue = queueOf('senderId', entity);
        if (!queue) throw new Refusal('AUTH');
        send(queue, command.body, command.notify);
        return { op: 'OK' };
      }
      case 'NSUB': {
        const queue = queueOfNotifier(entity);
        if (!queue || !isSignedWith(queue.notifier!.notifierKey)) throw new Refusal('AUTH');
        subscribe(entity, session);
        // After the answer to the command.
        setImmediate(() => deliverNotifications(queue));
        return { op: 'OK' };
      }
    }
  }

  /** A session lasts as long as its stream. */
  function openSession(response: ServerResponse): void {
    const session = newId();
    sessions.set(session, response);
    response.once('close', () => {
      sessions.delete(session);
      for (const [subject, subscriber] of subscribers)
        if (subscriber === session) subscribers.delete(subject);
    });
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    response.write(`${JSON.stringify({ event: 'SESSION', session } satisfies SessionEvent)}\n`);
  }

  async function handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<boolean> {
    if (request.method === 'GET' && path === SESSION_PATH) {
      openSession(response);
      return true;
    }
    if (request.method !== 'POST' || path !== '/_send') return false;
    const { senderId, body, notify = true } = (await json(request)) as SendRequest;
    const queue = queueOf('senderId', senderId);
    if (queue) sendJson(response, 200, send(queue, body, notify));
    else sendJson(response, 404, { error: 'there is no such queue' });
    return true;
  }

  const server = await startRouterServer({
    protocol: 'smp',
    certificate: file.certificate,
    port,
    ...(version === undefined ? {} : { version }),
    behaviour: {
      execute: (command, context) => {
        const answer = answerOr(() => execute(command, context));
        save();
        return answer;
      },
      subjectsOf: (command) => notifierOfQueue(queues.get(command.entity ?? '')),
      handle,
      state: () => ({ queues: [...queues.values()], subscribed: [...subscribers.keys()] }),
      loseState() {
        queues.clear();
        subscribers.clear();
        save();
      },
      stopping: () => file.flush(),
    },
  });
  return Object.assign(server, {
    queues: () => [...queues.values()],
    subscribed: () => [...subscribers.keys()],
    send(senderId: string, body: string, notify = true) {
      const queue = queueOf('senderId', senderId);
      if (!queue) throw new Error('there is no such queue');
      return send(queue, body, notify);
    },
  });
}

interface SendRequest {
  senderId: string;
  body: string;
  notify?: boolean;
}

type NotifierKeys = Pick<Extract<SmpCommand, { op: 'NKEY' }>, 'notifierKey' | 'recipientDhKey'>;

const newId = (): string => randomBytes(24).toString('base64url');

function notifierOfQueue(queue: StoredQueue | undefined): string[] {
  return queue?.notifier ? [queue.notifier.notifierId] : [];
}

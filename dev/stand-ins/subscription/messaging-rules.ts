/** What a messaging router (SMP) knows and does: queues with their notifiers, messages, and who is subscribed to them. */
import { randomBytes } from 'node:crypto';
import { generateDhKeys, secretOrNothing } from '../../../activities/subscription/router/keys.ts';
import type { SessionEvent, SmpAnswer, SmpCommand } from './protocol.ts';
import type { Credentials, ReceivedCommand, RouterRules } from './router-rules.ts';
import { Refusal } from './router-rules.ts';
import type { MessageSeals, Notification, OpenSession } from './transport.ts';

/** Binary values are base64url; keys that authorize are in the spelling of the transport. */
export interface StoredQueue {
  recipientId: string;
  senderId: string;
  recipientKey: string;
  /** Agreed with the recipient, for the bodies of messages. */
  secret?: string;
  /** Whether its sender may say who sends. */
  senderMaySecure?: boolean;
  /** Once it is there, messages must be authorized by it. */
  senderKey?: string;
  notifier?: StoredNotifier;
  messages: { messageId: string; body: string; at: number; notify: boolean }[];
}

interface StoredNotifier {
  notifierId: string;
  notifierKey: string;
  /** Agreed with the recipient: only the recipient may read what a notification says about its message. */
  secret: string;
  /** Not delivered yet. */
  waiting: Notification[];
}

/** The commands of messaging routers. What only one of the transports can say is optional. */
export type MessagingCommand =
  | Exclude<SmpCommand, { op: 'NEW' }>
  | (Extract<SmpCommand, { op: 'NEW' }> & {
      recipientDhKey?: string;
      password?: string;
      /** Whether the session is subscribed to it immediately. */
      subscribes?: boolean;
      senderMaySecure?: boolean;
    })
  | { op: 'KEY' | 'SKEY'; senderKey: string };

export type MessagingAnswer =
  | Exclude<SmpAnswer, { op: 'IDS' }>
  | (Extract<SmpAnswer, { op: 'IDS' }> & { routerDhKey?: string; senderMaySecure?: boolean });

export interface MessagingRules extends RouterRules {
  check(received: ReceivedCommand<MessagingCommand>): void;
  execute(received: ReceivedCommand<MessagingCommand>): MessagingAnswer;
  openSession: OpenSession;
  queues(): StoredQueue[];
  /** Ids of queues (their recipients') and notifiers that a session is subscribed to. */
  subscribed(): string[];
  /** Sends a message; `notify` false is one that its sender wants no notification for. @throws Error for no queue. */
  send(senderId: string, body: string, notify?: boolean): { messageId: string; at: number };
}

const CREDENTIALS: Record<MessagingCommand['op'], Credentials> = {
  NEW: 'signature',
  KEY: 'signature and entity',
  SKEY: 'signature and entity',
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

/** Notifications that are kept for a notifier without a subscriber; the oldest go first. */
const MAX_WAITING = 100;
/** Messages that a queue holds until its recipient has acknowledged them. */
const MAX_MESSAGES = 1_000;

export interface MessagingRulesOptions {
  seals: MessageSeals;
  /** From before the restart. */
  queues: readonly StoredQueue[];
  save(queues: () => StoredQueue[]): void;
  flush(): void;
  /** Without it no client makes a queue. */
  password: string | undefined;
}

export function createMessagingRules(options: MessagingRulesOptions): MessagingRules {
  const { seals, password } = options;
  const queues = new Map<string, StoredQueue>();
  /** By the id of the sender, and by that of the notifier. */
  const queuesOfSenders = new Map<string, StoredQueue>();
  const queuesOfNotifiers = new Map<string, StoredQueue>();
  const sessions = new Map<string, (event: SessionEvent) => void>();
  /** Session that gets what happens to a queue (by its recipient's id) or a notifier. */
  const subscribers = new Map<string, string>();

  const save = (): void => options.save(() => [...queues.values()]);

  function keep(queue: StoredQueue): void {
    queues.set(queue.recipientId, queue);
    queuesOfSenders.set(queue.senderId, queue);
    if (queue.notifier) queuesOfNotifiers.set(queue.notifier.notifierId, queue);
  }
  for (const queue of options.queues) keep(queue);

  /** @returns whether anybody was told. */
  function tell(subject: string, event: SessionEvent): boolean {
    const session = sessions.get(subscribers.get(subject) ?? '');
    session?.(event);
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
    queuesOfNotifiers.delete(notifierId);
    tell(notifierId, { event: 'DELD', entity: notifierId });
    subscribers.delete(notifierId);
  }

  /** Another notifier each time, also for the same key. */
  function addNotifier(queue: StoredQueue, { notifierKey, recipientDhKey }: NotifierKeys) {
    removeNotifier(queue);
    const { secret, routerDhKey } = agree(recipientDhKey);
    const notifierId = newId();
    queue.notifier = { notifierId, notifierKey, secret, waiting: [] };
    queuesOfNotifiers.set(notifierId, queue);
    return { notifierId, routerDhKey };
  }

  function deliverNotifications({ notifier }: StoredQueue): void {
    while (notifier?.waiting[0] && tell(notifier.notifierId, notifier.waiting[0])) notifier.waiting.shift();
  }

  function deliverMessage(queue: StoredQueue): void {
    const message = sealedMessage(queue);
    if (message) tell(queue.recipientId, { event: 'MSG', recipientId: queue.recipientId, ...message });
  }

  /** The oldest one, as its recipient gets it. */
  function sealedMessage({ messages: [message], secret }: StoredQueue) {
    if (!message) return undefined;
    const { messageId, at } = message;
    return { messageId, body: seals.body(message, secret), at };
  }

  function send(queue: StoredQueue, body: string, notify: boolean): { messageId: string; at: number } {
    if (queue.messages.length >= MAX_MESSAGES) throw new Refusal('QUOTA');
    const messageId = newId();
    const at = Date.now();
    queue.messages.push({ messageId, body, at, notify });
    if (queue.messages.length === 1) deliverMessage(queue);
    const { notifier } = queue;
    if (notifier && notify) {
      const meta = seals.meta({ messageId, at }, notifier.secret);
      notifier.waiting.push({ event: 'NMSG', notifierId: notifier.notifierId, at, meta });
      if (notifier.waiting.length > MAX_WAITING) notifier.waiting.shift();
      deliverNotifications(queue);
    }
    save();
    return { messageId, at };
  }

  /** By its sender's id, for requests from outside. */
  function sendTo(senderId: string, body: string, notify = true): { messageId: string; at: number } {
    const queue = queuesOfSenders.get(senderId);
    if (!queue) throw new Error('there is no such queue');
    return send(queue, body, notify);
  }

  function create(
    command: Extract<MessagingCommand, { op: 'NEW' }>,
    session: string | undefined,
  ): MessagingAnswer {
    if (password !== undefined && command.password !== password) throw new Refusal('AUTH');
    const { recipientKey, recipientDhKey, senderMaySecure, notifier: keys } = command;
    const agreed = recipientDhKey === undefined ? undefined : agree(recipientDhKey);
    const queue: StoredQueue = {
      recipientId: newId(),
      senderId: newId(),
      recipientKey,
      ...(agreed ? { secret: agreed.secret } : {}),
      ...(senderMaySecure === undefined ? {} : { senderMaySecure }),
      messages: [],
    };
    keep(queue);
    if (command.subscribes) subscribe(queue.recipientId, session);
    const { recipientId, senderId } = queue;
    return {
      op: 'IDS',
      recipientId,
      senderId,
      ...(agreed ? { routerDhKey: agreed.routerDhKey } : {}),
      ...(senderMaySecure === undefined ? {} : { senderMaySecure }),
      ...(keys ? { notifier: addNotifier(queue, keys) } : {}),
    };
  }

  /** Only the first key is taken, which may be said again. */
  function secure(queue: StoredQueue, senderKey: string): MessagingAnswer {
    if (queue.senderKey !== undefined && queue.senderKey !== senderKey) throw new Refusal('AUTH');
    queue.senderKey = senderKey;
    return { op: 'OK' };
  }

  /** The queue that a command is about, if who may says so: its recipient, a sender or the notifier. */
  function queueOf(received: ReceivedCommand<MessagingCommand>): StoredQueue {
    const { command, entity = '', isAuthorized, isAuthorizedBy } = received;
    if (command.op === 'NSUB') {
      const queue = queuesOfNotifiers.get(entity);
      return allowed(queue, queue?.notifier && isAuthorizedBy(queue.notifier.notifierKey));
    }
    if (command.op === 'SKEY') {
      const queue = queuesOfSenders.get(entity);
      return allowed(queue, queue?.senderMaySecure && isAuthorizedBy(command.senderKey));
    }
    if (command.op === 'SEND') {
      const queue = queuesOfSenders.get(entity);
      const senderKey = queue?.senderKey;
      return allowed(queue, senderKey === undefined ? !isAuthorized : isAuthorizedBy(senderKey));
    }
    const queue = queues.get(entity);
    return allowed(queue, queue && isAuthorizedBy(queue.recipientKey));
  }

  function check(received: ReceivedCommand<MessagingCommand>): void {
    const { command, isAuthorizedBy } = received;
    if (command.op === 'NEW') allowed(command, isAuthorizedBy(command.recipientKey));
    else if (command.op !== 'PING') queueOf(received);
  }

  function execute(received: ReceivedCommand<MessagingCommand>): MessagingAnswer {
    const { command, session } = received;
    if (command.op === 'PING') return { op: 'PONG' };
    if (command.op === 'NEW') {
      check(received);
      return create(command, session);
    }
    const queue = queueOf(received);
    const { recipientId } = queue;
    switch (command.op) {
      case 'KEY':
      case 'SKEY':
        return secure(queue, command.senderKey);
      case 'NKEY':
        return { op: 'NID', ...addNotifier(queue, command) };
      case 'NDEL':
        removeNotifier(queue);
        return { op: 'OK' };
      case 'DEL':
        removeNotifier(queue);
        queues.delete(recipientId);
        queuesOfSenders.delete(queue.senderId);
        subscribers.delete(recipientId);
        return { op: 'OK' };
      case 'SUB':
        subscribe(recipientId, session);
        deliverMessage(queue);
        return { op: 'OK' };
      case 'GET': {
        // Who is subscribed gets its messages in the session.
        if (session !== undefined && subscribers.get(recipientId) === session) {
          throw new Refusal('CMD', 'PROHIBITED');
        }
        const message = sealedMessage(queue);
        return message ? { op: 'MSG', ...message } : { op: 'OK' };
      }
      case 'ACK':
        if (queue.messages[0]?.messageId !== command.messageId) throw new Refusal('NO_MSG');
        queue.messages.shift();
        deliverMessage(queue);
        return { op: 'OK' };
      case 'SEND':
        send(queue, command.body, command.notify);
        return { op: 'OK' };
      case 'NSUB':
        subscribe(queue.notifier!.notifierId, session);
        // After the answer to the command.
        setImmediate(() => deliverNotifications(queue));
        return { op: 'OK' };
    }
  }

  return {
    credentials: CREDENTIALS,
    check,
    execute(received) {
      try {
        return execute(received);
      } finally {
        save();
      }
    },
    subjectsOf(_command, entity = '') {
      const notifier = queues.get(entity)?.notifier;
      return notifier ? [notifier.notifierId] : [];
    },
    state: () => ({ queues: [...queues.values()], subscribed: [...subscribers.keys()] }),
    loseState() {
      for (const index of [queues, queuesOfSenders, queuesOfNotifiers]) index.clear();
      subscribers.clear();
      save();
    },
    async control(route, body) {
      if (route !== 'POST /_send') return undefined;
      const { senderId, body: text, notify } = (await body()) as SendRequest;
      return queuesOfSenders.has(senderId) ? sendTo(senderId, text, notify) : undefined;
    },
    started: () => undefined,
    stopping: () => options.flush(),
    openSession(session, tellIt) {
      sessions.set(session, tellIt);
      return () => {
        sessions.delete(session);
        for (const [subject, subscriber] of subscribers) {
          if (subscriber === session) subscribers.delete(subject);
        }
      };
    },
    queues: () => [...queues.values()],
    subscribed: () => [...subscribers.keys()],
    send: sendTo,
  };
}

interface SendRequest {
  senderId: string;
  body: string;
  notify?: boolean;
}

type NotifierKeys = Pick<Extract<SmpCommand, { op: 'NKEY' }>, 'notifierKey' | 'recipientDhKey'>;

const newId = (): string => randomBytes(24).toString('base64url');

/** @throws Refusal `AUTH` when the subject does not exist, or belongs to another client. */
function allowed<Subject>(subject: Subject | undefined, isAllowed: boolean | undefined): Subject {
  if (subject === undefined || !isAllowed) throw new Refusal('AUTH');
  return subject;
}

/** @throws Refusal when no secret can be agreed with that key. */
function agree(recipientDhKey: string): { secret: string; routerDhKey: string } {
  const { publicKey, privateKey } = generateDhKeys();
  const secret = secretOrNothing(Buffer.from(recipientDhKey, 'base64url'), privateKey);
  if (!secret) throw new Refusal('CMD', 'SYNTAX');
  return { secret: secret.toString('base64url'), routerDhKey: publicKey.toString('base64url') };
}

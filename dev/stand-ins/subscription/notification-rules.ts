/** What a notification router (NTF) knows and does: device tokens, subscriptions to notifiers, and pushes. */
import { randomBytes } from 'node:crypto';
import type {
  DeviceToken,
  RouterAddress,
  TokenStatus,
} from '../../../activities/subscription/router/ports.ts';
import { generateDhKeys, secretOrNothing } from '../../../activities/subscription/router/keys.ts';
import type { NtfAnswer, NtfCommand } from './protocol.ts';
import { NTF_VERSION_WITH_REASONS } from './protocol.ts';
import type { NotificationState, StoredSubscription, StoredToken } from './notification-state.ts';
import type { PushTarget, Pusher } from './notification-pushes.ts';
import { createPusher } from './notification-pushes.ts';
import type { Subscriber } from './notification-subscriber.ts';
import { createSubscriber } from './notification-subscriber.ts';
import { DONE } from './router-desk.ts';
import type { Credentials, ReceivedCommand, RouterRules } from './router-rules.ts';
import { Refusal } from './router-rules.ts';
import { PUSH_SEALS } from './binary/seals.ts';
import { createSubscriberSessions } from './binary/subscriber-sessions.ts';
import type { Notification } from './transport.ts';

export interface NotificationRules extends RouterRules {
  check(received: ReceivedCommand<NtfCommand>): void;
  execute(received: ReceivedCommand<NtfCommand>): NtfAnswer;
  tokens(): StoredToken[];
  subscriptions(): StoredSubscription[];
  setTokenStatus(tokenId: string, status: TokenStatus): void;
  setSubscriptionStatus(subscriptionId: string, status: string): void;
  /** Pushes to every token with a cron interval as if it had passed. */
  pushCron(): void;
}

export interface NotificationRulesOptions {
  pushes: PushTarget;
  /** Toward messaging routers, and for what pushes look like. */
  /** From before the restart. */
  state: NotificationState | undefined;
  save(state: () => NotificationState): void;
  flush(): void;
}

const CREDENTIALS: Record<NtfCommand['op'], Credentials> = {
  TNEW: 'signature',
  TVFY: 'signature and entity',
  TCHK: 'signature and entity',
  TRPL: 'signature and entity',
  TDEL: 'signature and entity',
  TCRN: 'signature and entity',
  SNEW: 'signature',
  SCHK: 'signature and entity',
  SDEL: 'signature and entity',
  PING: 'none',
};

const CAN_BE_VERIFIED: readonly TokenStatus[] = ['REGISTERED', 'CONFIRMED', 'ACTIVE'];
/** Subscribed to when a session with their router opens. */
const SUBSCRIBED: readonly string[] = ['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'];
const SHORTEST_CRON_MINUTES = 20;
const MINUTE_MS = 60_000;

export function createNotificationRules(options: NotificationRulesOptions): NotificationRules {
  const { pushes } = options;
  const tokens = new Map((options.state?.tokens ?? []).map((token) => [token.tokenId, token]));
  const subscriptions = new Map(
    (options.state?.subscriptions ?? []).map((subscription) => [subscription.subscriptionId, subscription]),
  );
  let subscriber: Subscriber | undefined;
  let pusher: Pusher | undefined;
  let cron: NodeJS.Timeout | undefined;

  const state = (): NotificationState => ({
    tokens: [...tokens.values()],
    subscriptions: [...subscriptions.values()],
  });
  const save = (): void => options.save(state);
  const subscriptionsOf = (tokenId: string): StoredSubscription[] =>
    [...subscriptions.values()].filter((subscription) => subscription.tokenId === tokenId);

  const byNotifier = new Map([...subscriptions.values()].map((one) => [placeOf(one), one]));

  /** The live subscription to a notifier of a router. */
  const subscriptionTo = (router: RouterAddress, notifierId: string): StoredSubscription | undefined =>
    byNotifier.get(placeOf({ router, notifierId }));

  function removeSubscription(subscription: StoredSubscription): void {
    subscriptions.delete(subscription.subscriptionId);
    byNotifier.delete(placeOf(subscription));
  }

  function setStatus(router: RouterAddress, notifierId: string, status: string): void {
    const subscription = subscriptionTo(router, notifierId);
    if (subscription) subscription.status = status;
    save();
  }

  function connect(): void {
    pusher = createPusher({ ...pushes, seals: PUSH_SEALS, changed: save });
    subscriber = createSubscriber(createSubscriberSessions(), {
      notifiersAt: (router) =>
        [...subscriptions.values()].filter(
          ({ status, router: of }) => SUBSCRIBED.includes(status) && isSameRouter(of, router),
        ),
      pending(router, notifierIds) {
        for (const notifierId of notifierIds) setStatus(router, notifierId, 'PENDING');
      },
      subscribed(router, notifierId, error) {
        const status = error === undefined ? 'ACTIVE' : error === 'AUTH' ? 'AUTH' : `ERR ${error}`;
        setStatus(router, notifierId, status);
      },
      event(router, event) {
        if (event.event === 'NMSG') notify(router, event);
        else setStatus(router, event.entity, event.event === 'END' ? 'END' : 'DELETED');
      },
      disconnected(router) {
        for (const subscription of subscriptions.values()) {
          const { status } = subscription;
          if (!isSameRouter(subscription.router, router) || !SUBSCRIBED.includes(status)) continue;
          subscription.status = 'INACTIVE';
        }
        save();
      },
    });
    for (const { router } of subscriptions.values()) subscriber.subscribe(router, []);
    cron = setInterval(() => runCron((token) => Date.now() - token.lastCronAt), MINUTE_MS).unref();
  }

  function notify(router: RouterAddress, event: Notification): void {
    const subscription = subscriptionTo(router, event.notifierId);
    const token = subscription && tokens.get(subscription.tokenId);
    if (!token) return;
    subscription.last = event;
    save();
    pusher?.pushMessages(token, subscriptionsOf(token.tokenId));
  }

  function runCron(passedMs: (token: StoredToken) => number): void {
    for (const token of tokens.values()) {
      if (token.cronMinutes === 0 || passedMs(token) < token.cronMinutes * MINUTE_MS) continue;
      token.lastCronAt = Date.now();
      pusher?.pushCheck(token);
    }
    save();
  }

  function removeToken(tokenId: string): void {
    tokens.delete(tokenId);
    for (const subscription of subscriptionsOf(tokenId)) removeSubscription(subscription);
  }

  /** The token whose owner gives a command; for SCHK and SDEL that of the subscription. */
  function tokenOf({ command, entity = '', isAuthorizedBy }: ReceivedCommand<NtfCommand>): StoredToken {
    const isAboutSubscription = command.op === 'SCHK' || command.op === 'SDEL';
    const own = isAboutSubscription ? subscriptions.get(entity)?.tokenId : entity;
    const token = tokens.get((command.op === 'SNEW' ? command.tokenId : own) ?? '');
    if (!token || !isAuthorizedBy(token.authKey)) throw new Refusal('AUTH');
    return token;
  }

  function check(received: ReceivedCommand<NtfCommand>): void {
    const { command, isAuthorizedBy } = received;
    if (command.op === 'PING') return;
    if (command.op !== 'TNEW') tokenOf(received);
    else if (!isAuthorizedBy(command.authKey)) throw new Refusal('AUTH');
  }

  function execute(received: ReceivedCommand<NtfCommand>): NtfAnswer {
    const { command, entity = '', version } = received;
    if (command.op === 'PING') return { op: 'PONG' };
    if (command.op === 'TNEW') {
      check(received);
      return registerToken(command);
    }
    const token = tokenOf(received);
    switch (command.op) {
      case 'TVFY':
        if (!CAN_BE_VERIFIED.includes(token.status) || token.code !== command.code) {
          throw new Refusal('AUTH');
        }
        token.status = 'ACTIVE';
        for (const other of [...tokens.values()]) {
          if (other !== token && isSameDevice(other.device, token.device)) removeToken(other.tokenId);
        }
        return { op: 'OK' };
      case 'TCHK':
        return { op: 'TKN', status: statusIn(version, token.status) };
      case 'TRPL':
        token.device = command.device;
        token.status = 'REGISTERED';
        token.code = newCode();
        pusher?.pushVerification(token);
        return { op: 'OK' };
      case 'TDEL':
        removeToken(token.tokenId);
        return { op: 'OK' };
      case 'TCRN':
        if (command.minutes > 0 && command.minutes < SHORTEST_CRON_MINUTES) throw new Refusal('QUOTA');
        token.cronMinutes = command.minutes;
        token.lastCronAt = Date.now();
        return { op: 'OK' };
      case 'SNEW':
        return subscribe(token, command);
      case 'SCHK':
        return { op: 'SUB', status: subscriptions.get(entity)!.status };
      case 'SDEL':
        removeSubscription(subscriptions.get(entity)!);
        return { op: 'OK' };
    }
  }

  function registerToken(command: CommandOf<'TNEW'>): NtfAnswer {
    const { device, authKey, dhKey } = command;
    const known = [...tokens.values()].find(
      (token) => token.authKey === authKey && isSameDevice(token.device, device),
    );
    // With another secret, pushes that are under way could not be read.
    if (known && known.clientDhKey !== dhKey) throw new Refusal('AUTH');
    const token = known ?? newToken(device, authKey, dhKey);
    if (!CAN_BE_VERIFIED.includes(token.status)) token.status = 'REGISTERED';
    tokens.set(token.tokenId, token);
    pusher?.pushVerification(token);
    return { op: 'IDTKN', tokenId: token.tokenId, routerDhKey: token.routerDhKey };
  }

  function subscribe(token: StoredToken, command: CommandOf<'SNEW'>): NtfAnswer {
    const { router, notifierId, notifierPrivateKey } = command;
    const isAllowed =
      token.status === 'ACTIVE' || token.status === 'EXPIRED' || token.status.startsWith('INVALID');
    if (!isAllowed) throw new Refusal('AUTH');
    const known = subscriptionTo(router, notifierId);
    if (known && (known.tokenId !== token.tokenId || known.notifierPrivateKey !== notifierPrivateKey)) {
      throw new Refusal('AUTH');
    }
    const subscriptionId = known?.subscriptionId ?? randomBytes(24).toString('base64url');
    if (!known) {
      const { tokenId } = token;
      const made = { subscriptionId, tokenId, router, notifierId, notifierPrivateKey, status: 'NEW' };
      subscriptions.set(subscriptionId, made);
      byNotifier.set(placeOf(made), made);
      // After the answer, which says nothing about the messaging router.
      setImmediate(() => subscriber?.subscribe(router, [made]));
    }
    return { op: 'IDSUB', subscriptionId };
  }

  function setTokenStatus(tokenId: string, status: TokenStatus): void {
    const token = tokens.get(tokenId);
    if (token) token.status = status;
    save();
  }

  function setSubscriptionStatus(subscriptionId: string, status: string): void {
    const subscription = subscriptions.get(subscriptionId);
    if (subscription) subscription.status = status;
    save();
  }

  const pushCron = (): void => runCron(() => Number.POSITIVE_INFINITY);

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
    subjectsOf: (command, entity = '') => subjectsOf(command, subscriptions.get(entity)),
    state,
    loseState() {
      tokens.clear();
      subscriptions.clear();
      byNotifier.clear();
      save();
    },
    async control(route, body) {
      if (!['POST /_token', 'POST /_subscription', 'POST /_cron'].includes(route)) return undefined;
      if (route === 'POST /_cron') pushCron();
      else {
        const { tokenId, subscriptionId, status } = (await body()) as Record<string, string>;
        if (tokenId !== undefined) setTokenStatus(tokenId, status as TokenStatus);
        if (subscriptionId !== undefined) setSubscriptionStatus(subscriptionId, status ?? '');
      }
      return DONE;
    },
    started: connect,
    async stopping() {
      clearInterval(cron);
      await Promise.all([subscriber?.close(), pusher?.close()]);
      options.flush();
    },
    tokens: () => [...tokens.values()],
    subscriptions: () => [...subscriptions.values()],
    setTokenStatus,
    setSubscriptionStatus,
    pushCron,
  };
}

type CommandOf<Op extends NtfCommand['op']> = Extract<NtfCommand, { op: Op }>;

function newToken(device: DeviceToken, authKey: string, clientDhKey: string): StoredToken {
  const dh = generateDhKeys();
  const secret = secretOrNothing(Buffer.from(clientDhKey, 'base64url'), dh.privateKey);
  if (!secret) throw new Refusal('CMD', 'SYNTAX');
  return {
    tokenId: randomBytes(24).toString('base64url'),
    device,
    authKey,
    clientDhKey,
    routerDhKey: dh.publicKey.toString('base64url'),
    secret: secret.toString('base64url'),
    code: newCode(),
    status: 'REGISTERED',
    cronMinutes: 0,
    lastCronAt: 0,
  };
}

const newCode = (): string => randomBytes(32).toString('base64url');

function isSameDevice(one: DeviceToken, other: DeviceToken): boolean {
  return one.provider === other.provider && one.token === other.token;
}

const placeOf = ({
  router: { host, port },
  notifierId,
}: Pick<StoredSubscription, 'router' | 'notifierId'>): string => `${host}:${port}/${notifierId}`;

/** Routers are the same when they listen at the same place. */
function isSameRouter(one: RouterAddress, other: RouterAddress): boolean {
  return one.host === other.host && one.port === other.port;
}

function statusIn(version: number, status: TokenStatus): TokenStatus {
  return version < NTF_VERSION_WITH_REASONS && status.startsWith('INVALID') ? 'INVALID' : status;
}

/** Fields of any command, unchecked. */
interface NtfFields {
  notifierId?: string;
  tokenId?: string;
  device?: { token?: string };
}

function subjectsOf(
  { notifierId, tokenId, device }: NtfFields,
  about: StoredSubscription | undefined,
): string[] {
  const subjects = [notifierId, tokenId, device?.token, about?.notifierId, about?.tokenId];
  return subjects.filter((subject) => typeof subject === 'string');
}

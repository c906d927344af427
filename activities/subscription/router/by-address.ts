/**
 * The ports toward routers as the service uses them: each router is spoken to as its address says, over HTTPS (http.ts)
 * or in the routers' own protocol (binary/).
 */
import type { HeldSession } from './binary/routers.ts';
import { createBinaryMessagingRouter, createBinaryNotificationRouter } from './binary/routers.ts';
import type { ConnectOptions } from './binary/connect.ts';
import type { SessionFacts } from './binary/session.ts';
import { createMessagingRouter, createNotificationRouter } from './http.ts';
import type {
  ItemResult,
  MessagingRouter,
  NotificationRouter,
  RouterAddress,
  RouterError,
  RouterResult,
} from './ports.ts';
import type { LastError } from './reports.ts';
import { createRouterReports } from './reports.ts';

export interface RouterOptions {
  /** For all answers of a batch, ms; default 30 s. */
  commandTimeoutMs?: number;
  /** For a connection, TLS included, ms; default 45 s. */
  connectTimeoutMs?: number;
  /** The only way to hosts that end in `.onion`. */
  socksProxy?: ConnectOptions['socksProxy'];
}

/** What is known of a router without asking it. */
export interface RouterWatch {
  /** Sessions that are held with it; over HTTPS there is none. */
  sessionsWith(address: RouterAddress): SessionFacts[];
  lastErrorOf(address: RouterAddress): LastError | undefined;
}

export type MessagingRouters = MessagingRouter & HeldSession & RouterWatch;
export type NotificationRouters = NotificationRouter & HeldSession & RouterWatch;

export function createMessagingRouters(options: RouterOptions = {}): MessagingRouters {
  const { noted, notedAll, lastErrorOf } = createRouterReports();
  const binary = createBinaryMessagingRouter(binaryOptions(options));
  const https = createMessagingRouter(options);
  const of = (address: RouterAddress): MessagingRouter => (isBinary(address) ? binary : https);

  /** Both adapters at the same time, each with its items. */
  async function split<Item, Value>(
    items: readonly Item[],
    addressOf: (item: Item) => RouterAddress,
    ask: (router: MessagingRouter, items: Item[]) => Promise<ItemResult<Item, Value>[]>,
  ): Promise<ItemResult<Item, Value>[]> {
    const byRouter = Map.groupBy(items, (item) => of(addressOf(item)));
    const results = (await Promise.all([...byRouter].map(([router, some]) => ask(router, some)))).flat();
    for (const { item, result } of results) notedAll(addressOf(item), [result]);
    return results;
  }

  return {
    ping: (address) => noted(address, of(address).ping(address)),
    createQueue: (request) => noted(request.address, of(request.address).createQueue(request)),
    createNotifierKeys: (requests) =>
      split(
        requests,
        ({ queue }) => queue.address,
        (router, some) => router.createNotifierKeys(some),
      ),
    deleteNotifierKeys: (queues) =>
      split(
        queues,
        ({ address }) => address,
        (router, some) => router.deleteNotifierKeys(some),
      ),
    deleteQueues: (queues) =>
      split(
        queues,
        ({ address }) => address,
        (router, some) => router.deleteQueues(some),
      ),
    factsOf: (address) => binary.factsOf(address),
    sessionsWith: (address) => binary.sessionsWith(address),
    lastErrorOf,
    close: () => closeBoth(binary, https),
  };
}

export function createNotificationRouters(options: RouterOptions = {}): NotificationRouters {
  const { noted, notedAll, lastErrorOf } = createRouterReports();
  const binary = createBinaryNotificationRouter(binaryOptions(options));
  const https = createNotificationRouter(options);
  const of = ({ address }: { address: RouterAddress }): NotificationRouter =>
    isBinary(address) ? binary : https;

  return {
    ping: (address) => noted(address, of({ address }).ping(address)),
    registerToken: (request) => noted(request.address, of(request).registerToken(request)),
    verifyToken: (token, code) => noted(token.address, of(token).verifyToken(token, code)),
    checkToken: (token) => noted(token.address, of(token).checkToken(token)),
    replaceToken: (token, device) => noted(token.address, of(token).replaceToken(token, device)),
    deleteToken: (token) => noted(token.address, of(token).deleteToken(token)),
    setCron: (token, minutes) => noted(token.address, of(token).setCron(token, minutes)),

    async createSubscriptions(token, requests) {
      const isReachable = ({ messagingRouter }: (typeof requests)[number]) =>
        isBinary(messagingRouter) === isBinary(token.address);
      const answers = await of(token).createSubscriptions(token, requests.filter(isReachable));
      notedAll(token.address, answers);
      const next = answers.values();
      return requests.map((request): RouterResult<string> =>
        isReachable(request) ? (next.next().value ?? MISSING) : { ok: false, error: SPEAKS_OTHERWISE },
      );
    },

    async checkSubscriptions(token, subscriptionIds) {
      const answers = await of(token).checkSubscriptions(token, subscriptionIds);
      notedAll(token.address, answers);
      return answers;
    },
    deleteSubscription: (token, id) => noted(token.address, of(token).deleteSubscription(token, id)),
    openVerification: (token, verification) => of(token).openVerification(token, verification),
    factsOf: (address) => binary.factsOf(address),
    sessionsWith: (address) => binary.sessionsWith(address),
    lastErrorOf,
    close: () => closeBoth(binary, https),
  };
}

/** A notification router listens to queues itself, and speaks one protocol with all messaging routers. */
const SPEAKS_OTHERWISE: RouterError = {
  source: 'AGENT',
  code: 'PROHIBITED',
  detail: 'the messaging router and the notification router do not speak the same protocol',
};
const MISSING: RouterResult<never> = {
  ok: false,
  error: { source: 'BROKER', code: 'TRANSPORT', detail: 'fewer answers than commands' },
};

const isBinary = ({ transport }: RouterAddress): boolean => transport === 'binary';

const binaryOptions = ({ commandTimeoutMs, connectTimeoutMs, socksProxy }: RouterOptions) => ({
  ...(commandTimeoutMs === undefined ? {} : { commandTimeoutMs }),
  ...(connectTimeoutMs === undefined ? {} : { timeoutMs: connectTimeoutMs }),
  socksProxy,
});

async function closeBoth(...routers: Pick<MessagingRouter, 'close'>[]): Promise<void> {
  await Promise.all(routers.map((router) => router.close()));
}

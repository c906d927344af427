/**
 * The rules of notification subscriptions that are arithmetic and nothing else: what a Create does about a connection,
 * which delays a retry waits, what the lists of a round are, and what a router's answer to a check means. Pure.
 */

/** A router; which certificate it presents is not part of who it is. */
export interface ServerKey {
  host: string;
  port: number;
}

/** The queue of a connection. */
export interface QueueFacts {
  server: ServerKey;
  /** Of its notifier credentials; absent without credentials. */
  notifierId?: string | undefined;
}

/** The subscription of a connection. */
export interface RecordFacts {
  smpServer: ServerKey;
  ntfServer: ServerKey;
  notifierId?: string | undefined;
  /** Absent: a worker has given up, which only a reset ends. */
  action?: RecordAction | undefined;
  /** A worker could not read it, and leaves it alone until it is written again. */
  isUnreadable?: boolean;
}

/** What a Create does about a connection: make a record, start it over, or wake the worker that has it. */
export type Bucket =
  { bucket: 'new' | 'reset' } | { bucket: 'continue'; pool: 'ntf-smp' | 'ntf-ntf'; server: ServerKey };

/**
 * Sorts a connection into a bucket; the first rule that fits decides.
 * Where neither side has an id yet, an address that differs counts as a mismatch, too: a worker that is woken for the
 * router of the queue would never find the record.
 */
export function bucketOf(queue: QueueFacts, record: RecordFacts | undefined): Bucket {
  if (!record) return { bucket: 'new' };
  if (queue.notifierId !== record.notifierId) return { bucket: 'reset' };
  if (!isSameServer(queue.server, record.smpServer)) return { bucket: 'reset' };
  const { action } = record;
  if (action === undefined || record.isUnreadable) return { bucket: 'reset' };
  switch (action) {
    case 'ntf-delete':
    case 'ntf-rotate':
    case 'smp-delete':
      return { bucket: 'reset' };
    case 'smp-key':
      return { bucket: 'continue', pool: 'ntf-smp', server: queue.server };
    case 'ntf-create':
    case 'ntf-check':
      return { bucket: 'continue', pool: 'ntf-ntf', server: record.ntfServer };
  }
}

export function isSameServer(one: ServerKey, other: ServerKey): boolean {
  return one.host === other.host && one.port === other.port;
}

/** Each server once, in an order that does not depend on where they came from. */
export function distinctServers<S extends ServerKey>(servers: readonly S[]): S[] {
  const byName = new Map(servers.map((server) => [`${server.host}:${server.port}`, server]));
  return [...byName].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, server]) => server);
}

/** The order in which a round works its lists off; the first one that is retried blocks the others. */
export const LIST_ORDER = [
  'smp-key',
  'smp-delete',
  'ntf-create',
  'ntf-check',
  'ntf-delete',
  'ntf-rotate',
  'token-delete',
] as const;

export type ListKind = (typeof LIST_ORDER)[number];
/** What the next worker does about a subscription. */
export type RecordAction = Exclude<ListKind, 'token-delete'>;

/** Things of one kind that are worked on together. */
export interface WorkList {
  kind: ListKind;
  /** Connection ids; of a token deletion the record's id. */
  ids: string[];
}

/** What was claimed, as the lists of a round. */
export function listsOf(items: readonly { id: string; kind: ListKind }[]): WorkList[] {
  return LIST_ORDER.flatMap((kind) => {
    const ids = items.filter((item) => item.kind === kind).map(({ id }) => id);
    return ids.length === 0 ? [] : [{ kind, ids }];
  });
}

/** How failed work is tried again, ms. */
export interface RetryPace {
  firstMs: number;
  /** How long the first delay is kept. */
  constantForMs: number;
  maxMs: number;
}

/** Where a list stands in its retries. */
export interface RetryState {
  /** Attempts that have been made. */
  attempts: number;
  /** The next delay, and how long the earlier ones were together, microseconds. */
  delayUs: number;
  sleptUs: number;
}

export const freshRetry = ({ firstMs }: RetryPace): RetryState => ({
  attempts: 0,
  delayUs: firstMs * 1_000,
  sleptUs: 0,
});

/** The state after another attempt has failed and its delay was waited. */
export function nextRetry(
  { attempts, delayUs, sleptUs }: RetryState,
  { constantForMs, maxMs }: RetryPace,
): RetryState {
  const slept = sleptUs + delayUs;
  const isConstant = slept < constantForMs * 1_000;
  return {
    attempts: attempts + 1,
    sleptUs: slept,
    delayUs: isConstant ? delayUs : Math.min(Math.floor((delayUs * 3) / 2), maxMs * 1_000),
  };
}

/** How often a worker died in a clock minute. */
export interface Deaths {
  /** Minutes since the epoch. */
  minute: number;
  count: number;
}

/** Deaths in one clock minute that a worker survives. */
const SURVIVED_DEATHS = 4;

/** @returns the deaths with another one, and whether the worker survives that. */
export function countDeath(before: Deaths, nowMs: number): { deaths: Deaths; hasSurvived: boolean } {
  const minute = Math.floor(nowMs / 60_000);
  const count = before.minute === minute ? before.count + 1 : 1;
  return { deaths: { minute, count }, hasSurvived: count <= SURVIVED_DEATHS };
}

/** What has become of a subscription, and what is to be done about it next. */
export interface NextStep {
  status: string;
  action: RecordAction;
  /** When, epoch ms. */
  actionMs: number;
}

export const stepAfterKey = (nowMs: number): NextStep => ({
  status: 'KEY',
  action: 'ntf-create',
  actionMs: nowMs,
});

export const stepAfterCreate = (nowMs: number, firstCheckMs: number): NextStep => ({
  status: 'CREATED NEW',
  action: 'ntf-check',
  actionMs: nowMs + firstCheckMs,
});

/** A subscription with one of these is alive on its notification router, even if it still waits for something there. */
const STILL_SUBSCRIBED: readonly string[] = ['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'];

/**
 * A subscription that is alive is checked again after the interval; otherwise it is made again, from the key on.
 *
 * @param status as the router answered; undefined when the router does not know the subscription.
 */
export function stepAfterCheck(
  status: string | undefined,
  nowMs: number,
  checkIntervalMs: number,
): NextStep & { isKept: boolean } {
  return status !== undefined && STILL_SUBSCRIBED.includes(status)
    ? { isKept: true, status: `CREATED ${status}`, action: 'ntf-check', actionMs: nowMs + checkIntervalMs }
    : { isKept: false, status: 'NEW', action: 'smp-key', actionMs: nowMs };
}

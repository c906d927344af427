/**
 * The rules of notification subscriptions that are arithmetic and nothing else: which delays a retry waits, what the lists of a
 * round are, and what a router's answer to a check means. Pure.
 */

/** A router; which certificate it presents is not part of who it is. */
export interface ServerKey {
  host: string;
  port: number;
}

export function isSameServer(one: ServerKey, other: ServerKey): boolean {
  return one.host === other.host && one.port === other.port;
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

/** A subscription with one of these is alive on its notification router, even if it still waits for something there. */
const STILL_SUBSCRIBED: readonly string[] = ['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'];

/**
 * A subscription that is alive is checked again after the interval; otherwise it is made again, from the key on.
 *
 * @param status as the router answered; undefined when the router does not know the subscription.
 * @returns what has become of it, what is to be done about it next, and when, epoch ms.
 */
export function stepAfterCheck(
  status: string | undefined,
  nowMs: number,
  checkIntervalMs: number,
): { isKept: boolean; status: string; action: RecordAction; actionMs: number } {
  return status !== undefined && STILL_SUBSCRIBED.includes(status)
    ? { isKept: true, status: `CREATED ${status}`, action: 'ntf-check', actionMs: nowMs + checkIntervalMs }
    : { isKept: false, status: 'NEW', action: 'smp-key', actionMs: nowMs };
}

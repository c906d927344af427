/**
 * Publication of routes: lease, hand-off, and each route's durable transition.
 *
 * The order is load, hand off (Redis), settle (PostgreSQL); a crash may come between any two of them. The hand-off
 * script remembers per (route, generation) what it appended, so the attempt after a crash finds it and only settles.
 * Transitions compare `updated_at`, so an attempt that slept through its lease cannot overwrite a fresher row.
 *
 * One route or hundreds, of one notification or of many, take the same way: handed off side by side, settled by one
 * statement. Whatever goes wrong with a route stays with it.
 *
 * An attempt finds out whether its route is too late, by PostgreSQL's clock when the row is loaded. Nothing else does:
 * whatever delays a route, an attempt follows.
 */
import { randomUUID } from 'node:crypto';
import type { Catalog, Channel } from '../../api/intent/catalog.ts';
import type { EntryField } from '../../api/intent/outbound-entries.ts';
import { encodePushPayload, gatewayEntryFields, mailEntryFields } from '../../api/intent/outbound-entries.ts';
import type { PublicationFailure } from '../../workflows/failures.ts';
import type {
  DeferralReason,
  FailedAttempt,
  PublicationFailureDetails,
  PublishResult,
  ReplayOrder,
} from '../../workflows/intent/contract.ts';
import { ladderDelayMs } from '../../workflows/policies.ts';
import { query } from '../postgres.ts';
import { isOfLostRole, isRedisAway, reasonOf } from '../reason.ts';
import type { Beginning, HeldRoute } from './hand-off.ts';
import { handOff, leaseKey, voidedKey } from './hand-off.ts';
import type { RouteResources } from './resources.ts';
import type { RouteRow } from './route-rows.ts';
import {
  OPEN_GENERATION,
  RECORD_FAILURE,
  handOffKeyOf,
  keyOf,
  loadEach,
  logFields,
  nameOf,
  settleRoutes,
} from './route-rows.ts';

/** Long enough to explain, short enough for a table cell in the Web UI. */
const MAX_MESSAGE_LENGTH = 500;

/** How an attempt ended; a failed one with what a person should know. */
export type Attempt = PublishResult | (FailedAttempt & { message: string });

export interface Attempted {
  route: RouteRow;
  attempt: Attempt;
}

/** A route whose entry is in its stream, while its row does not say so yet. */
interface HandedOff extends HeldRoute {
  status: 'handed_off';
  entryId: string;
}

/**
 * @param sparesBudgets also an attempt that Redis does not answer is deferred, and not counted as failed. Its caller makes it
 * again.
 */
export function createPublisher(resources: RouteResources, sparesBudgets = false) {
  const { db, redis, confirmReplicated, log, metrics, catalog, route: settings } = resources;
  return { publish, defer };

  /**
   * Makes one attempt for each of these routes.
   *
   * @param load loads them: what Redis says of the beginning of an attempt is from before that.
   * @param replay the order that opens a dead-lettered one again.
   * @returns each with how its attempt ended, in the same order. Failures of publication are recorded by then.
   * @throws what `load` fails with; ApplicationFailure of PostgreSQL when the end of an attempt could not be recorded;
   * nothing is spent.
   */
  async function publish(load: () => Promise<RouteRow[]>, replay?: ReplayOrder): Promise<Attempted[]> {
    const begun = await handOff.begin(redis);
    const routes = await load();
    const isAgain = replay !== undefined && routes.some(({ status }) => status === 'dead_letter');
    const attempts = await (isAgain ? publishAgain(routes, begun, replay) : attemptEach(routes, begun));
    return routes.map((route, index) => ({ route, attempt: attempts[index]! }));
  }

  async function attemptEach(routes: RouteRow[], begun: Beginning): Promise<Attempt[]> {
    const encode = createEncoder(settings, catalog);
    const attempts = await Promise.all(routes.map((route) => handOver(route, encode, begun)));
    const replicated = await confirmReplicated(attempts.filter(isHandedOff));
    const published = await settleRoutes(
      db,
      routes.flatMap((route, index) => {
        const attempt = attempts[index]!;
        const isDone = isHandedOff(attempt) && replicated.has(attempt.keys.handOff);
        return isDone ? [{ ...route, publishedAs: attempt.entryId }] : [];
      }),
    );
    for (const isSettled of [true, false]) {
      const those = attempts.filter((_, index) => published.has(nameOf(routes[index]!)) === isSettled);
      void handOff.end(redis, those.filter(isHandedOff), isSettled);
    }
    return routes.map((route, index) => {
      const attempt = attempts[index]!;
      if (!isHandedOff(attempt)) return attempt;
      const attemptCount = published.get(nameOf(route));
      if (attemptCount === undefined) {
        const isReplicated = replicated.has(attempt.keys.handOff);
        return isReplicated ? deferToFresherRow(route) : defer(route.channel, 'replicas_behind');
      }
      const result = 'published';
      metrics.publishAttempt({ ...metricOf(route), result });
      const fields = { ...logFields(route), result, entry_id: attempt.entryId, attempt: attemptCount };
      log.info(fields, 'route published');
      return { status: result };
    });
  }

  function defer(channel: Channel, reason: DeferralReason, retryInMs?: number): PublishResult {
    metrics.routeDeferral({ channel, reason });
    return { status: 'deferred', reason, ...(retryInMs === undefined ? {} : { retryInMs }) };
  }

  /** Another process moved the row since it was loaded, or may have: look again soon, this attempt used nothing up. */
  function deferToFresherRow({ channel }: RouteRow): PublishResult {
    return defer(channel, 'leased', 50);
  }

  async function handOver(route: RouteRow, encode: Encoder, begun: Beginning): Promise<Attempt | HandedOff> {
    if (route.status === 'published' || route.status === 'skipped') return { status: route.status };
    if (route.status === 'dead_letter') return stillDead(route);
    if (route.isExpired) return expire(route);
    if (route.isPaused) {
      metrics.routeDeferral({ channel: route.channel, reason: 'paused' });
      return { status: 'paused' };
    }

    let entry: OutboundEntry;
    try {
      entry = encode(route);
    } catch (error) {
      return recordFailure(route, 'payload_encoding_failed', error);
    }

    const lease = { token: randomUUID(), ttlMs: settings.leaseTtlMs };
    const keys = keysOf(route);
    let handedOff;
    try {
      handedOff = await handOff.append(redis, keys, lease, entry, begun);
    } catch (error) {
      // The answer of a server that is not the master proves that nothing was appended. Without an answer it may have been
      // all the same; the next attempt finds out.
      if (isOfLostRole(error) || (sparesBudgets && isRedisAway(error))) {
        return defer(route.channel, 'redis_unavailable');
      }
      return recordFailure(route, entry.failure, error);
    }
    if (handedOff.outcome === 'leased') {
      // Never longer than our leases last, even if the key holds another expiry.
      const retryInMs = Math.min(settings.leaseTtlMs, Math.max(50, handedOff.expiresInMs));
      return defer(route.channel, 'leased', retryInMs);
    }
    if (handedOff.outcome === 'closed') return settleClosed(route);
    if (handedOff.outcome === 'late') return deferToFresherRow(route);
    return { status: 'handed_off', entryId: handedOff.entryId, keys, token: lease.token };
  }

  /**
   * Skips a route that is too late. It is closed in Redis first: an attempt that still runs, or one that died before it
   * could settle, may have handed it off, and then it is published after all.
   */
  async function expire(route: RouteRow): Promise<Attempt | HandedOff> {
    const keys = keysOf(route);
    let deliveredAs: string | undefined;
    try {
      deliveredAs = await handOff.close(redis, keys.handOff);
    } catch {
      return defer(route.channel, 'redis_unavailable');
    }
    // This attempt has no lease.
    if (deliveredAs !== undefined) return { status: 'handed_off', entryId: deliveredAs, keys, token: '' };
    const expiredAt = new Date(route.expiresAtMs!).toISOString();
    const skipped = await settleRoutes(db, [{ ...route, lateness: latenessOf(route, expiredAt) }]);
    if (skipped.size === 0) return deferToFresherRow(route);
    void handOff.end(redis, [{ keys, token: '' }], true);
    metrics.routeSkipped({ ...metricOf(route), reason: 'expired' });
    log.info({ ...logFields(route), result: 'expired', expired_at: expiredAt }, 'route expired');
    return { status: 'skipped' };
  }

  /** The process that closed it may have died before it could settle the row. */
  async function settleClosed(route: RouteRow): Promise<Attempt> {
    const skipped = await settleRoutes(db, [route]);
    if (skipped.size === 0) return deferToFresherRow(route);
    log.info({ ...logFields(route), result: 'skipped' }, 'route found cancelled');
    return { status: 'skipped' };
  }

  /** Opens dead routes, and then attempts all routes as their rows are. That carries out the order. */
  async function publishAgain(routes: RouteRow[], begun: Beginning, replay: ReplayOrder): Promise<Attempt[]> {
    const ends = await Promise.all(
      routes.map(async (route) => (route.status === 'dead_letter' ? openAgain(route, replay) : undefined)),
    );
    const dead = routes.filter(({ status }, index) => status === 'dead_letter' && !ends[index]);
    const opened = new Map((await loadEach(db, dead)).map((row) => [nameOf(row), row]));
    const open = routes.flatMap((route, index) => (ends[index] ? [] : [opened.get(nameOf(route)) ?? route]));
    const attempts = (await attemptEach(open, begun)).values();
    return ends.map((end) => end ?? attempts.next().value!);
  }

  /**
   * Opens a dead-lettered route once per replay that was ordered.
   *
   * @returns how the attempt ended, when it did by that.
   */
  async function openAgain(route: RouteRow, replay: ReplayOrder): Promise<Attempt | undefined> {
    if (replay.replayId === route.replayId) return stillDead(route);
    // What killed it may have been an answer that did not come back: then it was delivered after all.
    const keys = keysOf(route);
    let deliveredAs: string | undefined;
    try {
      [deliveredAs] = await handOff.entriesOf(redis, [keys.handOff]);
    } catch {
      return defer(route.channel, 'redis_unavailable');
    }
    if (deliveredAs === undefined && route.isExpired) {
      const fields = { ...logFields(route), result: 'expired' };
      log.info(fields, 'replay found the route expired, and sent nothing');
      return stillDead(route);
    }
    if (deliveredAs === undefined) {
      await openGeneration(route, replay);
      return undefined;
    }
    const replicated = await confirmReplicated([{ keys, entryId: deliveredAs }]);
    if (!replicated.has(keys.handOff)) return defer(route.channel, 'replicas_behind');
    await settleRoutes(db, [{ ...route, publishedAs: deliveredAs }], ['dead_letter']);
    const fields = { ...logFields(route), result: 'published', entry_id: deliveredAs };
    log.warn(fields, 'replay found the route published by its last attempt');
    return undefined;
  }

  /** Does nothing when this replay has opened a generation before, or another process moved the row. */
  async function openGeneration(route: RouteRow, replay: ReplayOrder): Promise<void> {
    const { replayId, requestedBy, reason = null } = replay;
    const values = [...keyOf(route), replayId, requestedBy, reason];
    const [opened] = await query<{ generation: number }>(db, OPEN_GENERATION, values);
    if (!opened) return;
    metrics.routeReplay(metricOf(route));
    const fields = { ...logFields(route), result: 'replay', ...opened, requested_by: requestedBy };
    log.info(fields, 'dead-lettered route opened again');
  }

  /** Writes the failed attempt down; the route is dead-lettered when it was the last one of its budget. */
  async function recordFailure(
    route: RouteRow,
    classification: PublicationFailure,
    error: unknown,
  ): Promise<Attempt> {
    const message = reasonOf(error).slice(0, MAX_MESSAGE_LENGTH);
    const attemptCount = route.attemptCount + 1;
    const isLast = attemptCount >= route.maxAttempts;
    const delayMs = ladderDelayMs(attemptCount, settings.backoffMinMs, settings.backoffMaxMs);
    const values = [
      ...keyOf(route),
      isLast,
      delayMs,
      classification,
      message,
      RECOVERY_HINTS[classification],
    ];
    const [recorded] = await query<Pick<RouteRow, 'nextAttemptAtMs'>>(db, RECORD_FAILURE, values);
    if (!recorded) return deferToFresherRow(route);

    const fields = {
      ...logFields(route),
      failure_classification: classification,
      attempt: attemptCount,
      max_attempts: route.maxAttempts,
      reason: message,
    };
    const failure = { ...metricOf(route), failure_classification: classification };
    metrics.publishAttempt({ ...failure, result: 'failed' });
    if (isLast) {
      metrics.routeDeadLetter(failure);
      log.error({ ...fields, result: 'dead_letter' }, 'route dead-lettered');
      return { status: 'dead_letter', classification };
    }
    metrics.routeRetry(failure);
    const retry = { ...fields, result: 'retry', retry_in_ms: delayMs };
    log.warn(retry, 'route publication failed, retry scheduled');
    return {
      status: 'failed',
      classification,
      message: `attempt ${attemptCount} of ${route.maxAttempts}: ${message}`,
      details: failureDetails({ ...route, ...recorded, attemptCount, retryInMs: delayMs }, settings),
    };
  }
}

/** What a workflow must know of a route that failed, as its row says. */
export function failureDetails(
  { attemptCount, maxAttempts, nextAttemptAtMs, retryInMs }: RouteRow,
  { backoffMinMs, backoffMaxMs }: RouteResources['route'],
): PublicationFailureDetails {
  const delayMs = ladderDelayMs(Math.max(1, attemptCount), backoffMinMs, backoffMaxMs);
  return {
    ...{ attemptCount, maxAttempts, nextAttemptAtMs: nextAttemptAtMs ?? 0 },
    // A clock that was put back since would make it any time.
    retryInMs: Math.min(delayMs, Math.max(1, retryInMs ?? 0)),
  };
}

const isHandedOff = (attempt: Attempt | HandedOff): attempt is HandedOff => attempt.status === 'handed_off';

/** What the attempts of a route are coordinated by. */
const keysOf = (route: RouteRow) => ({
  lease: leaseKey(route.notificationId, route.routeId),
  handOff: handOffKeyOf(route),
  voided: voidedKey(route.notificationId),
});

/** What a person should know of a route that is too late. */
const latenessOf = ({ attemptCount, classification }: RouteRow, at: string) =>
  `it was worth sending until ${at}, and ${attemptCount === 0 ? 'no attempt was counted' : `attempt ${attemptCount} failed with ${classification}`}`;

const stillDead = ({ classification }: RouteRow): Attempt => ({
  status: 'dead_letter',
  classification: classification ?? 'unknown',
});

const metricOf = ({ notificationType, channel }: RouteRow) => ({
  ...{ notification_type: notificationType, channel },
});

/** What an operator can do about a dead letter, by what killed it. */
export const RECOVERY_HINTS: Record<PublicationFailure, string> = {
  payload_encoding_failed:
    'The stored payload does not fit the outbound contract. Correct the producer, then publish a new intent with a new idempotency_key.',
  gateway_stream_publish_failed:
    'Redis did not take the push event. Check Redis and the gateway stream, then replay the route, or publish a new intent with a new idempotency_key.',
  mail_stream_publish_failed:
    'Redis did not take the e-mail command. Check Redis and the mail stream, then replay the route, or publish a new intent with a new idempotency_key.',
};

// --- What leaves for a route: an entry of the gateway's stream or of the mail service's.

interface OutboundEntry {
  stream: string;
  maxLen?: number;
  fields: EntryField[];
  /** How a failure to append this entry is classified. */
  failure: PublicationFailure;
}

/** @throws Error when the stored payload does not fit the outbound contract. */
type Encoder = (route: RouteRow) => OutboundEntry;

/** @returns makes entries; what many recipients get is encoded once. */
export function createEncoder(settings: RouteResources['route'], catalog: Catalog): Encoder {
  const encoded = new Map<string, Uint8Array>();

  function payloadOf({ carriedId, notificationType, payloadJson }: RouteRow): Uint8Array {
    const known = encoded.get(carriedId);
    if (known) return known;
    const payload = JSON.parse(payloadJson) as Record<string, unknown>;
    const bytes = encodePushPayload(catalog, notificationType, payload);
    encoded.set(carriedId, bytes);
    return bytes;
  }

  return (route) => {
    const carried = { ...route, notificationId: route.carriedId };
    const type = catalog.types.get(route.notificationType);
    if (route.channel === 'push') {
      const digest: EntryField[] = type?.collapse?.digest ? [['item_count', String(route.itemCount)]] : [];
      return {
        stream: settings.gatewayStream,
        maxLen: settings.gatewayMaxLen,
        failure: 'gateway_stream_publish_failed',
        fields: [...gatewayEntryFields({ ...carried, payloadBytes: payloadOf(route) }), ...digest],
      };
    }
    return {
      stream: settings.mailStream,
      failure: 'mail_stream_publish_failed',
      fields: mailEntryFields({
        ...carried,
        // A type without a configured template uses one with its name; so does a type that left the catalog.
        templateId: type?.templateId ?? route.notificationType,
        email: route.email ?? '',
        locale: route.locale ?? 'en',
      }),
    };
  };
}

/**
 * Forgetting a user: what every kind of work keeps of somebody is removed, or blanked where others need what it stands in;
 * what stays is said, with its end. Nothing happens while something of the user is under way.
 */
import { createHash } from 'node:crypto';
import { callbacksOf } from './account-callback/forget.ts';
import { OperationFailedError } from './errors.ts';
import type { PartOfForgetting, Person, Remaining } from './forget-places.ts';
import { personOf, walkOf } from './forget-places.ts';
import { addressesOf, intentsOf } from './intent/forget.ts';
import { mobilePushesOf } from './mobile-push/forget.ts';
import type { OperatorResources } from './resources.ts';
import { subscriptionsOf } from './subscription/forget.ts';
import { subscriptionOperations } from './subscription/subscriptions.ts';
import { bounded } from './temporal.ts';

export type { Remaining } from './forget-places.ts';

/** Passes over all places until one finds nothing: what came in meanwhile is found by the next. */
const MOST_PASSES = 3;
const DAY_MS = 86_400_000;

export interface Subject {
  userId: string;
  /** More that names them: addresses, names. They are blanked wherever they are a whole text of their own. */
  also?: readonly string[];
  /** Their number within the agent of subscriptions, which knows no user ids. Without it subscriptions stay. */
  subscriptionUser?: number;
  /** `NOTIFICATION_RECORD_RETENTION`, ms: when blank records are gone. */
  recordRetentionMs?: number;
}

export interface ForgetRequest {
  requestedBy: string;
  reason?: string;
  /** @param done rows and entries so far. @param what the place that is worked on. */
  onProgress?: (done: number, what: string) => void;
}

/** Rows and entries of one place. */
export interface Found {
  what: string;
  count: number;
}

export interface Forgotten {
  userId: string;
  /** What was removed or blanked; of a preview, what would be. Places with nothing are left out. */
  removed: Found[];
  remains: Remaining[];
}

export interface ForgettingPreview extends Forgotten {
  /** What is under way, as sentences: nothing is forgotten before it ended. */
  underWay: string[];
}

export function forgetOperations(resources: OperatorResources) {
  const { db } = resources;

  return {
    /** Says what `forget` would do, and what would be in its way. Changes nothing. */
    async preview(subject: Subject): Promise<ForgettingPreview> {
      const parts = await partsOf(subject);
      const underWay = await allUnderWay(parts);
      const counts = new Map<string, number>();
      for (const { places } of parts) for (const { what, count } of places) add(counts, what, await count());
      return { userId: subject.userId, underWay, ...(await resultOf(subject, parts, counts)) };
    },

    /**
     * Removes or blanks what is kept of somebody. To be repeated when it was cut off; a repeat finds nothing.
     *
     * @throws OperationFailedError while something is under way, and nothing was done then; and when more came in all the
     * time, which producers are to be kept from first.
     */
    async forget(subject: Subject, { requestedBy, reason, onProgress }: ForgetRequest): Promise<Forgotten> {
      const parts = await partsOf(subject);
      const underWay = await allUnderWay(parts);
      if (underWay.length > 0) {
        throw new OperationFailedError(
          ['nothing was done, because something of the user is under way:', ...underWay].join('\n'),
        );
      }
      const { rows } = await db.query<{ id: string }>(INSERT_REQUEST, [
        createHash('sha256').update(subject.userId).digest('hex'),
        requestedBy,
        reason ?? null,
      ]);
      const counts = new Map<string, number>();
      let done = 0;
      for (let pass = 1; ; pass += 1) {
        let found = 0;
        for (const { places } of parts) {
          for (const { what, forget } of places) {
            const count = await forget();
            add(counts, what, count);
            found += count;
            done += count;
            onProgress?.(done, what);
          }
        }
        if (found === 0) break;
        if (pass === MOST_PASSES) {
          throw new OperationFailedError(
            `${done} rows and entries are gone, and more come in: keep producers from naming the user, and repeat the command`,
          );
        }
      }
      const left = await allUnderWay(parts);
      if (left.length > 0) {
        throw new OperationFailedError(
          [
            `${done} rows and entries are gone, and more came in meanwhile; repeat the command:`,
            ...left,
          ].join('\n'),
        );
      }
      const result = await resultOf(subject, parts, counts);
      if (done === 0) await db.query(DELETE_REQUEST, [rows[0]!.id]);
      else await db.query(END_REQUEST, [rows[0]!.id, JSON.stringify(Object.fromEntries(counts))]);
      return { userId: subject.userId, ...result };
    },
  };

  async function partsOf({ userId, also = [], subscriptionUser }: Subject): Promise<PartOfForgetting[]> {
    if ([userId, ...also].some((value) => value.trim() === '')) {
      throw new OperationFailedError('an id or a value to forget must not be empty');
    }
    const person = personOf(userId, [...also, ...(await addressesOf(resources, userId))]);
    const { agentId = 'default' } = resources;
    return [
      intentsOf(resources, person),
      mobilePushesOf(resources, person),
      callbacksOf(resources, person),
      actionsOf(person),
      ...(subscriptionUser === undefined
        ? []
        : [
            subscriptionsOf({
              ...{ db, agentId, number: subscriptionUser },
              deleteConnections: subscriptionOperations(resources).delete,
            }),
          ]),
    ];
  }

  /** What operators wrote down of why they acted; all other columns name things, not people. */
  function actionsOf({ pattern }: Person): PartOfForgetting {
    const places = [
      walkOf(db, {
        table: 'notification.operator_actions',
        key: ['action_id'],
        ...{ values: [pattern], where: 'detail ~ $1', set: 'detail = NULL' },
      }),
    ];
    return { places, underWay: () => Promise.resolve([]), remains: () => Promise.resolve([]) };
  }

  async function resultOf(
    subject: Subject,
    parts: readonly PartOfForgetting[],
    counts: ReadonlyMap<string, number>,
  ): Promise<{ removed: Found[]; remains: Remaining[] }> {
    const removed = [...counts].flatMap(([what, count]) => (count > 0 ? [{ what, count }] : []));
    const remains = (await Promise.all(parts.map((part) => part.remains()))).flat();
    return { removed, remains: [...remains, ...(await elsewhere(subject))] };
  }

  /** What this command does not reach. */
  async function elsewhere({ recordRetentionMs, subscriptionUser }: Subject): Promise<Remaining[]> {
    const fromNow = (ms: number) => new Date(Date.now() + ms);
    const historiesMs = await retentionOfHistories(resources).catch(() => undefined);
    return [
      {
        what: `histories in Temporal's namespace ${resources.namespace}: ids of the user and content of notifications`,
        // The workflow of a dead letter looks once a day whether its route is still there.
        ...(historiesMs === undefined ? {} : { until: fromNow(historiesMs + DAY_MS) }),
        ends: 'by the retention of the namespace, which begins when a workflow ends',
      },
      {
        what: 'blank records: when and of which type something was, and hashes of their keys',
        ...(recordRetentionMs === undefined ? {} : { until: fromNow(recordRetentionMs) }),
        ends: 'by NOTIFICATION_RECORD_RETENTION',
      },
      {
        what: 'bytes of what was deleted, in files of PostgreSQL and Redis',
        ends: 'when these are written anew (OPERATING.md, Forgetting a user)',
      },
      ...(subscriptionUser === undefined
        ? [{ what: 'subscriptions', ends: 'with --subscription-user: they know no user ids' }]
        : []),
      {
        what: 'backups, logs, and what receivers have: Gateway, Mail Service, FCM, the portfolio service',
        ends: 'by their own rules',
      },
    ];
  }
}

async function allUnderWay(parts: readonly PartOfForgetting[]): Promise<string[]> {
  return (await Promise.all(parts.map((part) => part.underWay()))).flat();
}

function add(counts: Map<string, number>, what: string, count: number): void {
  counts.set(what, (counts.get(what) ?? 0) + count);
}

/** @returns ms. */
async function retentionOfHistories({ temporal, namespace }: OperatorResources): Promise<number | undefined> {
  const { config } = await bounded(temporal, () => temporal.workflowService.describeNamespace({ namespace }));
  const seconds = config?.workflowExecutionRetentionTtl?.seconds;
  return seconds == null ? undefined : Number(seconds.toString()) * 1_000;
}

/** $1 hash of the id, $2 who asks, $3 why. */
const INSERT_REQUEST = `
  INSERT INTO notification.forgotten_users (user_sha256, requested_by, reason, begun_at)
  VALUES ($1, $2, $3, clock_timestamp())
  RETURNING request_id::text AS id`;

/** A repeat that found nothing. */
const DELETE_REQUEST = 'DELETE FROM notification.forgotten_users WHERE request_id = $1';

/** $2 what was removed. */
const END_REQUEST = `
  UPDATE notification.forgotten_users SET ended_at = clock_timestamp(), removed = $2::jsonb WHERE request_id = $1`;

/**
 * Forgetting a user: one program over the places of all kinds of work. It deletes what they keep of the user, or blanks it
 * where others need the row, and lists what stays with its end. It does nothing while something of the user is under way.
 */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import { callbacksOf } from './account-callback/places.ts';
import { OperationFailedError } from './errors.ts';
import { addressesOf, intentsOf } from './intent/places.ts';
import { mobilePushesOf } from './mobile-push/jobs.ts';
import type { Person, Personal, Place, Remaining, TableOfPeople, UnderWay } from './places.ts';
import { idsOf, personOf, walk } from './places.ts';
import type { OperatorResources } from './resources.ts';
import { subscriptionsOf } from './subscription/subscriptions.ts';

export type { Remaining } from './places.ts';

/** Passes over all places until one finds nothing. A pass finds what came in during the pass before. */
const MOST_PASSES = 3;
/** Rows of one deletion: no long lock. */
const BATCH_SIZE = 1_000;
/** Ids that one sentence names. */
const NAMED = 20;

export interface Subject {
  userId: string;
  /** Addresses and names of the user. They are blanked where they are a whole JSON text. */
  also?: readonly string[];
  /** The number of the user within the agent of subscriptions, which knows no user ids. Without it subscriptions stay. */
  subscriptionUser?: number;
}

export interface ForgetRequest {
  requestedBy: string;
  reason?: string;
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
      const underWay = await allUnderWay(db, parts);
      const counts: Record<string, number> = {};
      for (const { what, count } of placesOf(parts)) counts[what] = (counts[what] ?? 0) + (await count());
      return { userId: subject.userId, underWay, ...(await resultOf(subject, parts, counts)) };
    },

    /**
     * Deletes or blanks what is kept of the user. A repeat goes on after a cut, and finds nothing after a success.
     *
     * @throws OperationFailedError while something is under way, before anything is done; and when every pass finds more,
     * because producers still name the user.
     */
    async forget(subject: Subject, { requestedBy, reason }: ForgetRequest): Promise<Forgotten> {
      const parts = await partsOf(subject);
      await refuseUnderWay(parts, 'nothing was done, because something of the user is under way');
      const hash = createHash('sha256').update(subject.userId).digest('hex');
      const { rows } = await db.query<{ id: string }>(INSERT_REQUEST, [hash, requestedBy, reason ?? null]);
      const counts: Record<string, number> = {};
      let done = 0;
      for (let pass = 1; ; pass += 1) {
        const before = done;
        for (const { what, forget } of placesOf(parts)) {
          const count = await forget();
          counts[what] = (counts[what] ?? 0) + count;
          done += count;
        }
        if (done === before) break;
        if (pass === MOST_PASSES) {
          throw new OperationFailedError(
            `${done} rows and entries are gone, and more come in: keep producers from naming the user, and repeat the command`,
          );
        }
      }
      await refuseUnderWay(
        parts,
        `${done} rows and entries are gone, and more came in meanwhile; repeat the command`,
      );
      const result = await resultOf(subject, parts, counts);
      if (done === 0) await db.query(DELETE_REQUEST, [rows[0]!.id]);
      else await db.query(END_REQUEST, [rows[0]!.id, JSON.stringify(counts)]);
      return { userId: subject.userId, ...result };
    },
  };

  function placesOf(parts: readonly Personal[]): Place[] {
    const all = parts.flatMap(({ places }) => places);
    return all.map((place) => ('table' in place ? rowsOf(db, place) : place));
  }

  async function refuseUnderWay(parts: readonly Personal[], what: string): Promise<void> {
    const underWay = await allUnderWay(db, parts);
    if (underWay.length > 0) throw new OperationFailedError([`${what}:`, ...underWay].join('\n'));
  }

  async function partsOf({ userId, also = [], subscriptionUser }: Subject): Promise<Personal[]> {
    if ([userId, ...also].some((value) => value.trim() === '')) {
      throw new OperationFailedError('an id or a value to forget must not be empty');
    }
    const more = [...also, ...(await addressesOf(db, userId))];
    const person = personOf(userId, more, subscriptionUser);
    const kinds = [intentsOf, mobilePushesOf, callbacksOf, actionsOf, subscriptionsOf];
    return kinds.map((of) => of(resources, person));
  }

  async function resultOf(
    subject: Subject,
    parts: readonly Personal[],
    counts: Readonly<Record<string, number>>,
  ): Promise<{ removed: Found[]; remains: Remaining[] }> {
    const removed = Object.entries(counts).flatMap(([what, count]) => (count > 0 ? [{ what, count }] : []));
    const remains = await Promise.all(parts.map(async (part) => part.remains?.() ?? []));
    return { removed, remains: [...remains.flat(), ...elsewhere(resources, subject)] };
  }
}

/** What this command does not reach. */
const elsewhere = ({ namespace }: OperatorResources, { subscriptionUser }: Subject): Remaining[] => [
  {
    what: `histories in Temporal's namespace ${namespace}: ids of the user, content of notifications, reasons of operators`,
    // The workflow of a dead letter checks its route once a day.
    ends: 'a day after the retention of the namespace, which begins when a workflow ends',
  },
  {
    what: 'blank records: when and of which type something was, and hashes of their keys',
    ends: 'by NOTIFICATION_RECORD_RETENTION',
  },
  {
    what: 'bytes of what was deleted, in files of PostgreSQL and Redis',
    ends: 'when these are written again (docs/operate/forget-a-user.md)',
  },
  ...(subscriptionUser === undefined
    ? [{ what: 'subscriptions', ends: 'with --subscription-user: they know no user ids' }]
    : []),
  {
    what: 'backups, logs, and what receivers have: Gateway, Mail Service, FCM, the portfolio service',
    ends: 'by their own rules',
  },
];

/** Reasons that operators gave for an action. The other columns of the table name things, not people. */
const actionsOf = (_: OperatorResources, { pattern }: Person): Personal => ({
  places: [
    {
      table: 'notification.operator_actions',
      key: ['action_id'],
      values: [pattern],
      where: 'detail ~ $1',
      set: 'detail = NULL',
    },
  ],
});

/** A table of another service does not exist, or has ids of another type: it has nothing of the user. */
const NOTHING_THERE: readonly unknown[] = ['42P01', '22P02', '22003'];
const NO_RIGHT = '42501';

/** Rows of a table as a place: found by an index, or on a walk over the table. */
function rowsOf(db: Pool, of: TableOfPeople): Place {
  const { table, key, where, values, set, isIndexed = false, isForeign = false } = of;
  const keys = key.join(', ');
  const change = set === undefined ? `DELETE FROM ${table}` : `UPDATE ${table} SET ${set}`;

  const count = async (range: string, all: unknown[]): Promise<number> => {
    const statement = `SELECT count(*)::int AS count FROM ${table} WHERE ${range} AND (${where})`;
    return (await db.query<{ count: number }>(statement, all)).rows[0]!.count;
  };
  const changeRange = async (range: string, all: unknown[]): Promise<number> =>
    (await db.query(`${change} WHERE ${range} AND (${where})`, all)).rowCount ?? 0;
  async function deleteBatches(): Promise<number> {
    for (let total = 0; ;) {
      // A lock would need another right than to delete. The condition is looked at again where a row has changed meanwhile.
      const { rowCount } = await db.query(
        `DELETE FROM ${table}
          WHERE (${keys}) IN (SELECT ${keys} FROM ${table} WHERE ${where} LIMIT ${BATCH_SIZE}) AND (${where})`,
        [...values],
      );
      total += rowCount ?? 0;
      if ((rowCount ?? 0) < BATCH_SIZE) return total;
    }
  }
  const ifThere = (work: () => Promise<number>) => () =>
    work().catch((error: { code?: string }) => {
      if (NOTHING_THERE.includes(error.code) || (isForeign && error.code === NO_RIGHT)) return 0;
      throw error;
    });
  const walked = (work: typeof count) => () => walk(db, { table, key }, values, work);
  return {
    what: table,
    count: ifThere(isIndexed ? () => count('true', [...values]) : walked(count)),
    forget: ifThere(isIndexed ? deleteBatches : walked(changeRange)),
  };
}

/** @returns a sentence for each reason to wait. */
async function allUnderWay(db: Pool, parts: readonly Personal[]): Promise<string[]> {
  const sentences = parts.flatMap(({ underWay = [] }) =>
    underWay.map(async ({ ids, what, advice, thing = 'notification' }: UnderWay) => {
      const found =
        typeof ids === 'function'
          ? await ids()
          : await idsOf(db, `${ids[0]} LIMIT ${NAMED + 1}`, ids.slice(1));
      const named = found.slice(0, NAMED).join(', ') + (found.length > NAMED ? ' and more' : '');
      return found.length === 0 ? [] : [`${thing} ${named} ${what}: ${advice}`];
    }),
  );
  return (await Promise.all(sentences)).flat();
}

/** $1 hash of the id, $2 operator, $3 reason. */
const INSERT_REQUEST = `
  INSERT INTO notification.forgotten_users (user_sha256, requested_by, reason, begun_at)
  VALUES ($1, $2, $3, clock_timestamp())
  RETURNING request_id::text AS id`;

/** A repeat that found nothing. */
const DELETE_REQUEST = 'DELETE FROM notification.forgotten_users WHERE request_id = $1';

/** $2 counts by place. */
const END_REQUEST = `
  UPDATE notification.forgotten_users SET ended_at = clock_timestamp(), removed = $2::jsonb WHERE request_id = $1`;

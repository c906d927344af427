/**
 * Who asked for what, when and why. The row is there before the change is made, or comes with it in its transaction: nothing is
 * changed without an author. Rows are only added: a second one tells how the action ended, and lists show both as one. Lists leave
 * out what was refused; the table has it.
 */
import type { Pool } from 'pg';
import { isRefusal } from './errors.ts';
import type { Listing, Page, WithoutNulls } from './lists.ts';
import { listOf, spanOf } from './lists.ts';
import type { OperatorResources } from './resources.ts';

/** Names that one row holds; of more, the first ones and their number. */
const MOST_NAMED = 10;

interface ActionRow {
  actionId: string;
  /** The command, such as `producers weight`. */
  action: string;
  /** What it was done to; null: everything. */
  target: string | null;
  requestedBy: string;
  /** The role of PostgreSQL that has written it. */
  dbUser: string;
  detail: string | null;
  actedAt: Date;
}

export type OperatorAction = WithoutNulls<ActionRow>;

export interface ActionFilter {
  action?: string;
  target?: string;
  requestedBy?: string;
  /** Bounds of the time of the action, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

interface NewAction extends Requester {
  action: string;
  target?: string | undefined;
  detail?: string | undefined;
}

/** Who asks for a change. */
export interface Requester {
  /** Default: `operator`. */
  requestedBy?: string | undefined;
}

/** What is known of a change only when it is made. */
type Made = Partial<Pick<OperatorAction, 'target' | 'detail'>>;

type Database = Pick<Pool, 'query'>;

/**
 * Makes a change. If this process dies meanwhile, or no worker answers, the row still shows the request.
 *
 * @param action without anything that names a user: `forget` does not read these rows.
 * @param describe tells what was changed; undefined: nothing was.
 * @throws what the change or the connection throws.
 */
export async function byAuthor<T>(
  { db }: { db: Database },
  action: NewAction,
  change: () => Promise<T>,
  describe: (made: T) => Made | undefined = () => ({}),
): Promise<T> {
  const id = await noteAction(db, action);
  const end = (made?: Made) =>
    db.query(END_ACTION, [id, made?.target ?? null, made?.detail ?? null, made === undefined]);
  try {
    const made = await change();
    const told = describe(made);
    if (told === undefined || told.target !== undefined || told.detail !== undefined) await end(told);
    return made;
  } catch (error) {
    // A row too many is better than an error in the place of the one that matters.
    if (isRefusal(error)) await end().catch(() => undefined);
    throw error;
  }
}

/** Writes down who asks for a change, in its transaction. @returns the row's id. @throws what the connection throws. */
export async function noteAction(
  db: Database,
  { action, target, requestedBy = 'operator', detail }: NewAction,
): Promise<string> {
  const values = [action, target ?? null, requestedBy, detail ?? null];
  const { rows } = await db.query<{ action_id: string }>(NOTE_ACTION, values);
  return rows[0]!.action_id;
}

/** @returns ids as one target. */
export function targetOf(ids: readonly (number | string)[]): string {
  const named = ids.slice(0, MOST_NAMED).join(', ');
  return ids.length > MOST_NAMED ? `${named} and ${ids.length - MOST_NAMED} more` : named;
}

export function actionOperations({ db }: OperatorResources) {
  return {
    /** Actions of operators, newest first. */
    list: (filter: ActionFilter = {}): Promise<Page<OperatorAction>> =>
      listOf<ActionRow, ActionFilter>(db, ACTIONS, filter),
  };
}

const ACTIONS: Listing<ActionFilter> = {
  columns: `action_id AS "actionId", action, target, requested_by AS "requestedBy", db_user AS "dbUser", detail,
            acted_at AS "actedAt"`,
  from: `(SELECT begun.action_id, begun.action, coalesce(ended.target, begun.target) AS target, begun.requested_by,
                 begun.db_user, coalesce(ended.detail, begun.detail) AS detail, begun.acted_at
            FROM notification.operator_actions AS begun
            LEFT JOIN notification.operator_actions AS ended
              ON ended.ends = begun.action_id AND ended.db_user = begun.db_user
           WHERE begun.ends IS NULL AND ended.is_void IS NOT TRUE) AS action`,
  order: 'acted_at DESC, action_id DESC',
  filters: {
    ...{ action: 'action = ?', target: 'target = ?', requestedBy: 'requested_by = ?' },
    ...spanOf('acted_at'),
  },
};

const NOTE_ACTION = `
  INSERT INTO notification.operator_actions (action, target, requested_by, detail) VALUES ($1, $2, $3, $4)
  RETURNING action_id`;

/** $1 action, $2 its target, $3 detail, as far as they are known now, $4 whether nothing was changed. */
const END_ACTION = `
  INSERT INTO notification.operator_actions (action, requested_by, ends, target, detail, is_void)
  SELECT action, requested_by, action_id, $2, $3, $4
    FROM notification.operator_actions
   WHERE action_id = $1 AND ends IS NULL`;

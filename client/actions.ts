/**
 * Who asked for what, when and why. The row is there before the change is made, or comes with it in its transaction: nothing is
 * changed without an author. Rows are only added: a second one says that a request was refused.
 */
import type { Pool } from 'pg';
import type { Given } from '../api/given.ts';
import { isRefusal } from './errors.ts';
import type { Listing, Page } from './lists.ts';
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

export type OperatorAction = Given<ActionRow>;

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

type Database = Pick<Pool, 'query'>;

/**
 * Makes a change. If this process dies meanwhile, or no worker answers, the row still shows the request.
 *
 * @param action without anything that names a user: `forget` does not read these rows.
 * @throws what the change or the connection throws.
 */
export async function byAuthor<T>(
  { db }: { db: Database },
  action: NewAction,
  change: () => Promise<T>,
): Promise<T> {
  await noteAction(db, action);
  try {
    return await change();
  } catch (error) {
    // A row too few is better than an error in the place of the one that matters.
    if (isRefusal(error)) await noteAction(db, { ...action, detail: 'refused' }).catch(() => undefined);
    throw error;
  }
}

/** Writes down who asks for a change, in its transaction. @throws what the connection throws. */
export async function noteAction(
  db: Database,
  { action, target, requestedBy = 'operator', detail }: NewAction,
): Promise<void> {
  await db.query(NOTE_ACTION, [action, target ?? null, requestedBy, detail ?? null]);
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
  from: 'notification.operator_actions',
  order: 'acted_at DESC, action_id DESC',
  filters: {
    ...{ action: 'action = ?', target: 'target = ?', requestedBy: 'requested_by = ?' },
    ...spanOf('acted_at'),
  },
};

const NOTE_ACTION = `
  INSERT INTO notification.operator_actions (action, target, requested_by, detail) VALUES ($1, $2, $3, $4)`;

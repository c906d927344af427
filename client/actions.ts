/**
 * Who asked for what, of commands that leave no other trace of it. The row is written once the change is made: what failed
 * is not in it.
 */
import type { Conditions, Page } from './lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf, withoutNulls } from './lists.ts';
import type { OperatorResources } from './resources.ts';

/** Names that one row holds; of more, the first ones and their number. */
const MOST_NAMED = 10;

export interface OperatorAction {
  actionId: string;
  /** The command, such as `producers weight`. */
  action: string;
  /** What it was done to; absent: everything. */
  target?: string;
  requestedBy: string;
  detail?: string;
  actedAt: Date;
}

export interface ActionFilter {
  action?: string;
  target?: string;
  requestedBy?: string;
  /** Bounds of the time of the action, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

type NewAction = Pick<OperatorAction, 'action' | 'requestedBy'> &
  Partial<Pick<OperatorAction, 'target' | 'detail'>>;

/** Writes down who asked for a change that was made. @throws what the connection throws. */
export async function noteAction(
  { db }: Pick<OperatorResources, 'db'>,
  { action, target, requestedBy, detail }: NewAction,
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
    async list(filter: ActionFilter = {}): Promise<Page<OperatorAction>> {
      const { limit = DEFAULT_LIMIT } = filter;
      const given = conditions([
        ['action = ?', filter.action],
        ['target = ?', filter.target],
        ['requested_by = ?', filter.requestedBy],
        ['acted_at >= ?', filter.since],
        ['acted_at <= ?', filter.until],
      ]);
      const { rows } = await db.query<ActionRow>(LIST_ACTIONS(given), [...given.values, limit + 1]);
      return pageOf(rows, limit, withoutNulls);
    },

    /**
     * Writes down who asked for a change that was made.
     *
     * @param action without anything that names a user: nobody looks here when one is forgotten.
     */
    note: (action: NewAction) => noteAction({ db }, action),
  };
}

type ActionRow = Pick<OperatorAction, 'actionId' | 'action' | 'requestedBy' | 'actedAt'> & {
  target: string | null;
  detail: string | null;
};

const LIST_ACTIONS = ({ where, next }: Conditions) => `
  SELECT action_id AS "actionId", action, target, requested_by AS "requestedBy", detail, acted_at AS "actedAt"
    FROM notification.operator_actions
   ${where}
   ORDER BY acted_at DESC, action_id DESC
   LIMIT ${next}`;

const NOTE_ACTION = `
  INSERT INTO notification.operator_actions (action, target, requested_by, detail) VALUES ($1, $2, $3, $4)`;

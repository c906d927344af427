/** What an operation is about: which rows match when it is asked for, the oldest first. */
import type { Conditions } from './lists.ts';

/** Items of one operation. */
export const MAX_ITEMS = 1_000_000;

export interface Choice {
  /** Of notification.operation_items, without those that say which item it is. */
  columns: readonly ('notification_id' | 'route_id' | 'job_id' | 'conn_id')[];
  /** FROM and what follows, without conditions. */
  from: string;
  /** When each item came to be; of `from`. */
  at: string;
  given: Conditions;
}

/** @returns the statement that writes down what is chosen. Columns of the same name in `from` must be one. */
export function chosenBy(
  { columns, from, at, given }: Choice,
  operationId: string,
  limit: number,
): { text: string; values: unknown[] } {
  const names = columns.join(', ');
  const next = given.values.length + 1;
  return {
    text: `
  INSERT INTO notification.operation_items (operation_id, position, ${names})
  SELECT $${next}, row_number() OVER (ORDER BY at, ${names}), ${names}
    FROM (SELECT ${names}, ${at} AS at
            FROM ${from}
           ${given.where}
           ORDER BY at, ${names}
           LIMIT $${next + 1}) AS chosen`,
    values: [...given.values, operationId, Math.min(limit, MAX_ITEMS)],
  };
}

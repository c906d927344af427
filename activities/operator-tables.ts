/** Which rows of operators' requests are deleted. Any role may be the only one that runs, so each kind deletes them. */
import type { Expiring, Kept } from './retention.ts';

/** @returns the tables in the order in which they are deleted from. */
export const operatorTables = (keepMs: number): Kept[] => TABLES.map((table) => ({ ...table, keepMs }));

const TABLES: Expiring[] = [
  {
    // One operation may have a million of them.
    name: 'operation_items',
    table: 'notification.operation_items',
    since: 'created_at',
    parent: { table: 'notification.operations', key: 'operation_id' },
  },
  {
    name: 'operations',
    table: 'notification.operations',
    since: 'created_at',
    keptBy: ['FROM notification.operation_items AS item WHERE item.operation_id = operations.operation_id'],
  },
  { name: 'operator_actions', table: 'notification.operator_actions', since: 'acted_at' },
  { name: 'forgotten_users', table: 'notification.forgotten_users', since: 'begun_at' },
];

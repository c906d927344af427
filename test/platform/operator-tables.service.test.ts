/** What operators asked for ends with the retention of records, in whatever role a process runs. */
import { eventually, slotOfTests } from '../harness.ts';

/** More than one batch. */
const OLD_ITEMS = 5_500;

const slot = slotOfTests();

const PLANT = `
  INSERT INTO notification.operations (operation_id, kind, filter, total, rate, requested_by, created_at)
  SELECT id, 'replay', '{}', ${OLD_ITEMS}, 20, 'nina', now() - age
    FROM (VALUES ('old', interval '721 hours'), ('young', interval '719 hours')) AS planted (id, age);
  INSERT INTO notification.operation_items (operation_id, position, notification_id)
  SELECT 'old', n, 'c' || n FROM generate_series(1, ${OLD_ITEMS}) AS n
   UNION ALL SELECT 'young', 1, 'c1';
  INSERT INTO notification.operator_actions (action, target, requested_by, acted_at)
  SELECT 'symbols remove', id, 'nina', now() - age
    FROM (VALUES ('old', interval '721 hours'), ('young', interval '719 hours')) AS planted (id, age);
  INSERT INTO notification.forgotten_users (user_sha256, requested_by, begun_at)
  SELECT id, 'nina', now() - age
    FROM (VALUES ('old', interval '721 hours'), ('young', interval '719 hours')) AS planted (id, age);`;

const LEFT = `
  SELECT 'operation ' || operation_id AS what FROM notification.operations
   UNION ALL SELECT 'item of ' || operation_id FROM notification.operation_items
   UNION ALL SELECT 'action on ' || target FROM notification.operator_actions
   UNION ALL SELECT 'forgotten ' || user_sha256 FROM notification.forgotten_users
   ORDER BY 1`;

test('I10 a process of any role deletes old operations, actions and requests to forget, and no young ones', async () => {
  await slot.db.query(PLANT);
  await slot.startService({ NOTIFICATION_ROLES: 'symbol-config' });
  await slot.client.schedule.getHandle('symbol-config-retention').trigger();
  await eventually('only what is young to be left', async () => {
    const { rows } = await slot.db.query<{ what: string }>(LEFT);
    return (
      rows.map(({ what }) => what).join() === 'action on young,forgotten young,item of young,operation young'
    );
  });
});

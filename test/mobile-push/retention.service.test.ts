/** Retention of mobile push jobs: what goes, and what it must leave. */
import { mobileTables } from '../../activities/mobile-push/rows.ts';
import { deleteExpired } from '../../dev/retention.ts';
import { slotOfTests } from '../harness.ts';

const slot = slotOfTests();
const DAY = 86_400_000;

test('kinds-V10 M3 jobs past their retention go with their sends, and none that is under way', async () => {
  await slot.db.query(`
    INSERT INTO notifications.notification_log (job_id, user_id, content, raw_fields, status, created_at)
    SELECT name, 'u', CASE WHEN status = 'malformed' THEN NULL ELSE '{}'::jsonb END,
           CASE WHEN status = 'malformed' THEN '{}'::jsonb END, status, now() - age::interval
      FROM (VALUES ('old-sent', 'sent', '721 hours'), ('old-failed', 'failed', '721 hours'),
                   ('old-pending', 'pending', '721 hours'),
                   ('old-stuck', 'pending', '721 hours'), ('young', 'sent', '719 hours'),
                   ('old-malformed', 'malformed', '2161 hours'), ('young-malformed', 'malformed', '721 hours'))
           AS job (name, status, age);
    UPDATE notifications.notification_log SET updated_at = created_at;
    INSERT INTO notifications.notification_sends (job_id, device_token_id, updated_at)
    SELECT job_id, '1', CASE job_id WHEN 'old-stuck' THEN now() - interval '25 hours' ELSE now() END
      FROM notifications.notification_log`);
  const { deleted } = await deleteExpired(slot.db, mobileTables(30 * DAY, 90 * DAY));
  expect(deleted).toEqual({ mobile_jobs: 2, stuck_mobile_jobs: 1, malformed_mobile_jobs: 1 });
  const idsIn = async (table: string) =>
    (
      await slot.db.query<{ job_id: string }>(`SELECT job_id FROM notifications.${table} ORDER BY 1`)
    ).rows.map(({ job_id }) => job_id);
  for (const table of ['notification_log', 'notification_sends']) {
    expect(await idsIn(table)).toEqual(['old-pending', 'young', 'young-malformed']);
  }
});

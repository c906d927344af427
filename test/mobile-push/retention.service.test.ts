/** Retention of mobile push jobs: what the scheduled run deletes, and what it must leave. */
import { RETENTION_WORKFLOW } from '../../workflows/recovery-contract.ts';
import { slotOfTests } from '../harness.ts';
import { QUICK, withMobilePush } from './jobs.ts';

const slot = slotOfTests();
beforeAll(async () => {
  await withMobilePush(slot);
  await slot.startService({
    ...QUICK,
    NOTIFICATION_CLEANUP_INTERVAL: '2h',
    // Rows without a job are not to be taken up.
    NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
  });
});

test('kinds-V10 M3 a run deletes jobs past their retention with their sends, and none that is under way', async () => {
  const schedule = slot.client.schedule.getHandle('mobile-push-retention');
  // It would run at each even hour as well.
  await schedule.pause();
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
  const { spec, action } = await schedule.describe();
  expect(spec.intervals?.[0]?.every).toBe(2 * 3_600_000);
  expect(action).toMatchObject({ workflowType: RETENTION_WORKFLOW });
  const run = await slot.client.workflow.start(RETENTION_WORKFLOW, {
    workflowId: 'a-run',
    taskQueue: 'mobile-push',
  });
  expect(await run.result()).toMatchObject({
    mobile_jobs: 2,
    stuck_mobile_jobs: 1,
    malformed_mobile_jobs: 1,
  });
  const idsIn = async (table: string) =>
    (
      await slot.db.query<{ job_id: string }>(`SELECT job_id FROM notifications.${table} ORDER BY 1`)
    ).rows.map(({ job_id }) => job_id);
  for (const table of ['notification_log', 'notification_sends']) {
    expect(await idsIn(table)).toEqual(['old-pending', 'young', 'young-malformed']);
  }
});

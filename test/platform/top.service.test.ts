/** `top`: what comes in, goes out, waits and died of each kind of work. */
import type { Top, TopOfKind } from '../../client/top.ts';
import { PLANTS, plantCauses } from '../../dev/planted-causes.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, slotOfTests, operatorOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { countOf } from '../intent/rows.ts';

const KINDS = ['intent', 'mobile-push', 'symbol-config', 'account-callback', 'subscription'];

const slot = slotOfTests();
const operator = operatorOfTests(slot);
const program = cliOfTests(slot);
beforeAll(() => slot.startService());

async function look(): Promise<Record<string, TopOfKind>> {
  const { kinds } = await operator.top();
  return Object.fromEntries(kinds.map((found) => [found.kind, found]));
}

test('U11 top counts what came in and went out within the last ten seconds', async () => {
  let rounds = 0;
  await eventually('three that came in and six that went out', async () => {
    const { intent: before } = await look();
    // A round that took longer than that counts no more.
    if (before!.arrivedPerSecond !== 0 || before!.donePerSecond !== 0) return false;
    rounds += 1;
    for (const key of ['one', 'two', 'three']) await publishTurn(slot.redis, `${key}-${rounds}`);
    await eventually(
      'all to be published',
      async () => (await countOf(slot, 'routes', "status = 'published'")) === 6 * rounds,
    );
    const { intent } = await look();
    return intent!.arrivedPerSecond === 0.3 && intent!.donePerSecond === 0.6;
  });
  const { intent, subscription } = await look();
  expect(intent!.waits).toEqual([]);
  expect(subscription).not.toHaveProperty('arrivedPerSecond');
});

test('U11 top counts what waits, says since when, and counts what died by its failure', async () => {
  await slot.stopServices();
  await plantCauses(slot.db, 2);
  const planted = (cause: string) => PLANTS.filter((plant) => plant.cause === cause).length * 2;
  const { intent, 'mobile-push': mobile, 'account-callback': callbacks } = await look();
  const waits = (kind: TopOfKind) => Object.fromEntries(kind.waits.map(({ what, count }) => [what, count]));

  // Those that wait for an hour, failed and are tried again, are overdue, or wait for who is paused.
  const { rows } = await slot.db.query<{ channel: string; open: number }>(
    'SELECT channel, count(*)::int AS open FROM notification.routes WHERE next_attempt_at IS NOT NULL GROUP BY 1',
  );
  expect(rows.reduce((sum, { open }) => sum + open, 0)).toBeGreaterThanOrEqual(planted('overdue') * 4);
  expect(waits(intent!)).toEqual({
    ...Object.fromEntries(rows.map(({ channel, open }) => [channel, open])),
    'not accepted yet': planted('waiting_for_acceptance'),
  });
  expect(Math.max(...intent!.waits.map(({ oldestMs }) => oldestMs))).toBeGreaterThan(0);
  expect(intent!.dead).toEqual([{ failure: 'mail_stream_publish_failed', count: planted('dead') }]);

  expect(waits(mobile!)).toEqual({ jobs: planted('push_waiting') });
  const failures = Object.fromEntries(mobile!.dead.map(({ failure, count }) => [failure, count]));
  expect(failures).toMatchObject({ invalid_job: planted('push_refused') });
  expect(failures['messaging/internal-error']).toBe(planted('push_failed') + planted('push_partly_sent'));

  expect(waits(callbacks!)).toMatchObject({
    callbacks: planted('callback_waiting'),
    'callbacks to be repeated': planted('callback_retrying'),
  });
  expect(callbacks!.dead).toEqual([{ failure: 'HTTP 503', count: planted('callback_given_up') }]);
});

test('U11 an unread entry is waited for, and a subscription that was given up is dead', async () => {
  await publishTurn(slot.redis, 'unread');
  // Without the agent and the routers that rows refer to.
  await slot.db.query(`
    SET LOCAL session_replication_role = replica;
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id)
    SELECT 'default', id, 1 FROM unnest(ARRAY['c-dead', 'c-due', 'c-later']) AS id;
    INSERT INTO subscriptions.rcv_queues (agent_id, conn_id, host, port, rcv_id, rcv_private_key)
    SELECT agent_id, conn_id, 'smp.test', 443, conn_id, '' FROM subscriptions.connections;
    INSERT INTO subscriptions.ntf_subscriptions
           (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, ntf_action, action_ts)
    VALUES ('default', 'c-dead', 1, 'smp.test', 443, 'ntf.test', 443, 'NEW', NULL, NULL),
           ('default', 'c-due', 1, 'smp.test', 443, 'ntf.test', 443, 'NEW', 'N', now() - interval '1 minute'),
           ('default', 'c-later', 1, 'smp.test', 443, 'ntf.test', 443, 'CREATED ACTIVE', 'C', now() + interval '1 hour')`);
  const { intent, subscription } = await look();
  expect(intent!.waits).toContainEqual({ what: 'not read yet', oldestMs: expect.any(Number) });
  expect(subscription).toMatchObject({
    waits: [{ what: 'of notification routers', count: 1 }],
    dead: [{ failure: 'given up', count: 1 }],
  });
  expect(subscription!.waits[0]!.oldestMs).toBeGreaterThanOrEqual(60_000);
});

test('U11 what a server does not say is missing, and said; the others are shown', async () => {
  const database = await slot.cutOffDatabase();
  const found = await look();
  await database.restore();
  expect(found['intent']!.unknown.join()).toMatch(/connection/);
  expect(found['intent']).not.toHaveProperty('arrivedPerSecond');
  expect(found['intent']!.waits.map(({ what }) => what)).toEqual(['not read yet']);
});

test('U11 a look shows each kind, and what waits and died, and is one object as JSON', async () => {
  const { code, stdout } = await program.cli(['top']);
  expect(code).toBe(0);
  const [head, ...lines] = stdout.split('\n');
  expect(head).toMatch(/^KIND +IN\/S +OUT\/S  +WAITING +OLDEST +DEAD$/);
  expect(lines.slice(0, KINDS.length).map((line) => line.split(' ')[0])).toEqual(KINDS);
  expect(stdout).toMatch(/^intent +mail_stream_publish_failed +2$/m);
  const { value } = await program.json<Top>(['top']);
  expect(value.kinds.map(({ kind }) => kind)).toEqual(KINDS);
});

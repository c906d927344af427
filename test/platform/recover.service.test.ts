/** `recover`: losses that nothing shows are made good because an operator says how far back. */
import type { RecoveryPlan, RecoveryRun } from '../../client/recovery.ts';
import { RECOVERY_WORKFLOW_ID } from '../../workflows/recovery-contract.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { startPortfolioService } from '../../dev/stand-ins/account-callback/portfolio-service.ts';
import { HOUR, MIDNIGHT, hour, inputsTaken } from '../account-callback/callbacks.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { ofTests } from '../of-tests.ts';
import { registryOfTests } from '../symbol-config/registry.ts';
import { GATEWAY, deliveriesTo, outboundIds } from '../service-process.ts';
import { bothPublished, countOf } from '../intent/rows.ts';
import { untilWorkflowsEnd } from '../put-back.ts';

const slot = slotOfTests();
const program = cliOfTests(slot);
const ROLES = 'intent,symbol-config,account-callback';
const registry = registryOfTests(slot);
const portfolio = ofTests(
  () => startPortfolioService(),
  (started) => started.stop(),
);
beforeAll(async () => {
  program.env['NOTIFICATION_ROLES'] = ROLES;
  await slot.startService(
    {
      NOTIFICATION_ROLES: ROLES,
      NOTIFICATION_ROUTE_LEASE_TTL: '1s',
      NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
      NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
    },
    {
      ...{ symbolTargets: registry.targets.targets, sampleSymbols: registry.targets.sampleSymbols },
      portfolioUrl: portfolio.url,
    },
  );
});

const hourIsKept = async () => (await countOf(slot, 'callback_snapshots', "user_id = 'LOST'")) === 1;

test('I54 S5 C7 recover repairs what no look can see: rows and entries that are gone, a route without a worker, a target without its list; it waits for a paused reader', async () => {
  await registry.settled();
  await appendInputs(slot.redis, [hour('LOST', MIDNIGHT - HOUR)]);
  await eventually('the hour', hourIsKept);
  await inputsTaken(slot.redis);
  const ids: string[] = [];
  for (const key of ['a', 'b', 'c']) {
    ids.push(await publishTurn(slot.redis, key));
    // In this order: the first entry that is gone would have been trimmed by who reads them.
    await bothPublished(slot, ids);
  }
  const [forgotten, taken, overdue] = ids as [string, string, string];
  await untilWorkflowsEnd(slot, ids);
  await eventually(
    'a look at all of them',
    async () => (await countOf(slot, 'inbound_streams', 'passed_id = $1', [overdue])) === 1,
  );
  const before = await outboundIds(slot.redis);

  for (const table of ['records', 'intents'])
    await slot.db.query(`DELETE FROM notification.${table} WHERE notification_id = $1`, [forgotten]);
  const [lost] = (await slot.redis.xrange(GATEWAY, '-', '+')).filter(([, fields]) =>
    fields.includes(`${taken}/push:user:user-1`),
  );
  await slot.redis.xdel(GATEWAY, lost![0]);
  await slot.db.query(
    `UPDATE notification.routes
        SET status = 'pending', attempt_count = 0, published_at = NULL, entry_id = NULL,
            next_attempt_at = now() - interval '10 minutes'
      WHERE notification_id = $1 AND channel = 'push'`,
    [overdue],
  );
  await slot.db.query('TRUNCATE notification.callback_snapshots CASCADE');
  await registry.targets.loseState('us-east-alert-1');

  const since = ['recover', '--since', '10m'];
  const { code, value } = await program.json<{ plan: RecoveryPlan }>([...since, '--dry-run']);
  expect(code).toBe(0);
  expect(value.plan).toMatchObject({
    ...{ publishedRoutes: 3, overdueRoutes: 1, waitingIntents: 0 },
    readAgain: { upTo: overdue },
  });
  // Nothing happens without a yes.
  expect(await program.cli(since)).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining('add --yes, or --dry-run to look'),
  });
  await expect(slot.client.workflow.getHandle(RECOVERY_WORKFLOW_ID).describe()).rejects.toThrow();

  // It waits for the reader while that is paused, and each further command follows it.
  const recover = [...since, '--yes'];
  await program.cli(['bridge', 'pause', '--reason', 'test']);
  for (const said of ['the recovery is started', 'a recovery runs already, this follows it']) {
    const asked = await program.cli([...recover, '--timeout', '3s']);
    expect(asked).toMatchObject({ code: 1, stderr: expect.stringContaining('reading again') });
    expect(asked.stderr).toContain(said);
    expect(asked.stderr).toContain('it goes on, and the same command follows it');
  }
  await program.cli(['bridge', 'resume']);
  const run = await program.json<RecoveryRun>(recover);
  expect(run.code).toBe(0);
  expect(run.value).toMatchObject({
    isDone: true,
    progress: {
      step: 'done',
      restored: [{ stream: GATEWAY, repaired: 1 }, { repaired: 0 }],
      takenUp: { overdue: 1, published: 1 },
      also: { 'symbol-config': {}, 'account-callback': { againFrom: expect.stringMatching(/^\d+-0$/) } },
    },
  });
  await bothPublished(slot, ids);
  await eventually('the hour again', hourIsKept);
  await eventually('the list again', async () => registry.targets.held('us-east-alert-1').source === 'push');
  expect(await outboundIds(slot.redis)).toEqual(before);
  expect(before).toEqual(deliveriesTo('user-1', ids));
});

/** `recover`: losses that nothing shows are made good because an operator says how far back. */
import type { RecoveryPlan, RecoveryRun } from '../../client/recovery.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { RECOVERY_WORKFLOW_ID } from '../../workflows/recovery-contract.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { startPortfolioService } from '../../dev/stand-ins/account-callback/portfolio-service.ts';
import { HOUR, MIDNIGHT, hour, inputsTaken } from '../account-callback/callbacks.ts';
import { cliOfEachTest } from '../command-line.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { takeSymbolRegistry } from '../symbol-config/registry.ts';
import { GATEWAY, deliveriesTo, outboundIds } from '../service-process.ts';
import { bothPublished } from '../intent/rows.ts';

const slot = slotOfEachTest();
const program = cliOfEachTest(slot);

const ENV = {
  NOTIFICATION_ROUTE_LEASE_TTL: '1s',
  NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: '200ms',
};

const settled = (ids: string[]) => bothPublished(slot, ids);
const ended = (id: string) =>
  eventually(`${id} to end`, async () => {
    const { status } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe();
    return status.name === 'COMPLETED';
  });
/** A row of a look. */
const seen = (table: string, condition: string, ...values: unknown[]) =>
  eventually(`a look at ${values.join(' ')}`, async () => {
    const { rows } = await slot.db.query(`SELECT FROM notification.${table} WHERE ${condition}`, values);
    return rows.length === 1;
  });
const lookedAt = (id: string) => seen('inbound_streams', 'passed_id = $1', id);
test('I54 recover repairs what no look can see: a record that is gone, an entry that is gone, a route without a worker', async () => {
  await slot.startService({ ...ENV, NOTIFICATION_RECONCILIATION_INTERVAL: '24h' });
  const ids: string[] = [];
  for (const key of ['a', 'b', 'c']) {
    ids.push(await publishTurn(slot.redis, key));
    // In this order: the first entry that is gone would have been trimmed by who reads them.
    await settled(ids);
  }
  const [forgotten, taken, overdue] = ids as [string, string, string];
  await Promise.all(ids.map(ended));
  await lookedAt(overdue);
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

  const { code, value } = await program.json<{ plan: RecoveryPlan }>([
    'recover',
    '--since',
    '10m',
    '--dry-run',
  ]);
  expect(code).toBe(0);
  expect(value.plan).toMatchObject({
    ...{ publishedRoutes: 3, overdueRoutes: 1, waitingIntents: 0 },
    readAgain: { upTo: overdue },
  });
  // Nothing happens without a yes.
  expect(await program.cli(['recover', '--since', '10m'])).toMatchObject({
    code: 2,
    stdout: expect.stringContaining('A recovery would'),
  });
  await expect(slot.client.workflow.getHandle(RECOVERY_WORKFLOW_ID).describe()).rejects.toThrow();

  const run = await program.json<RecoveryRun>(['recover', '--since', '10m', '--yes']);
  expect(run.code).toBe(0);
  expect(run.value).toMatchObject({
    isDone: true,
    progress: {
      step: 'done',
      restored: [{ stream: GATEWAY, repaired: 1 }, { repaired: 0 }],
      takenUp: { overdue: 1, published: 1 },
    },
  });
  await settled(ids);
  expect(await outboundIds(slot.redis)).toEqual(before);
  expect(before).toEqual(deliveriesTo('user-1', ids));
});

test('I54 a recovery waits for a paused reader, says so, and a second request follows it', async () => {
  await slot.startService(ENV);
  const id = await publishTurn(slot.redis, 'a');
  await settled([id]);
  await lookedAt(id);
  await program.cli(['bridge', 'pause', '--reason', 'test']);
  // All while it waits: how long it lasts after that may be shorter than a start of the program.
  for (const said of ['the recovery is started', 'a recovery runs already, this follows it']) {
    const asked = await program.cli(['recover', '--yes', '--timeout', '5s']);
    expect(asked).toMatchObject({ code: 1, stderr: expect.stringContaining('reading again') });
    expect(asked.stderr).toContain(said);
    expect(asked.stderr).toContain('it goes on, and the same command follows it');
  }
  await program.cli(['bridge', 'resume']);
  expect(await program.cli(['recover', '--yes'])).toMatchObject({ code: 0 });
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [id]));
});

test('I54 S5 C7 a recovery has symbols pushed to all targets and inputs of accounts taken again', async () => {
  const registry = await takeSymbolRegistry(slot);
  const portfolio = await startPortfolioService();
  const roles = 'intent,symbol-config,account-callback';
  try {
    await slot.startService(
      { ...ENV, NOTIFICATION_ROLES: roles },
      {
        symbolTargets: registry.targets.targets,
        sampleSymbols: registry.targets.sampleSymbols,
        portfolioUrl: portfolio.url,
      },
    );
    await registry.settled();
    await appendInputs(slot.redis, [hour('LOST', MIDNIGHT - HOUR)]);
    const kept = async () => {
      const { rows } = await slot.db.query(
        "SELECT FROM notification.callback_snapshots WHERE user_id = 'LOST'",
      );
      return rows.length;
    };
    await eventually('the hour', async () => (await kept()) === 1);
    await inputsTaken(slot.redis);
    // What no look can see: a row that is gone, and a target without its list.
    await slot.db.query('TRUNCATE notification.callback_snapshots CASCADE');
    await registry.targets.loseState('us-east-alert-1');

    program.env['NOTIFICATION_ROLES'] = roles;
    const run = await program.json<RecoveryRun>(['recover', '--since', '5m', '--yes']);
    expect(run.value).toMatchObject({
      isDone: true,
      progress: {
        also: { 'symbol-config': {}, 'account-callback': { againFrom: expect.stringMatching(/^\d+-0$/) } },
      },
    });
    await eventually('the hour again', async () => (await kept()) === 1);
    await eventually(
      'the list again',
      async () => registry.targets.held('us-east-alert-1').source === 'push',
    );
  } finally {
    await Promise.all([registry.targets.stop(), portfolio.stop()]);
  }
});

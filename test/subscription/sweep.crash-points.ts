/** Commands of a supervisor, and the sweep behind them; and a process that dies after each step of them. */
import { OPEN_UPDATE } from '../../workflows/subscription/contract.ts';
import { answerTo, isAtRest } from '../crash-walk.ts';
import { eventually } from '../harness.ts';
import { AGENT, SWEEP_SCHEDULE_ID, agentOfTests, crashWalkOfConnections, isCreated } from './agent.ts';
import { agreement } from './agreement.ts';

const CONNECTIONS = 40;

const agent = agentOfTests();
const { walk, next } = crashWalkOfConnections(agent, CONNECTIONS, '400ms');

const created = async (): Promise<number> => (await agent.records()).filter(isCreated).length;
/** The work of a process that dies before it wakes a worker for it. */
const forgetting = (connId: string): string => `
  UPDATE subscriptions.ntf_subscriptions
     SET smp_ntf_id = NULL, ntf_sub_id = NULL, status = 'NEW', ntf_action = NULL, smp_action = 'K', action_ts = now(),
         generation = generation + 1
   WHERE conn_id = '${connId}'`;

test('N1 N13 a process that dies after any step of a command: it is carried out, and its workers are woken', async () => {
  const putCommand = async () => {
    const connId = next();
    await agent.rows('DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = $1', [connId]);
    await agent.command([connId]);
    return async () => {
      const { queue, current } = await agent.state();
      const isIdle = queue.length === 0 && !current;
      return isIdle && (await created()) === CONNECTIONS;
    };
  };
  const putOpening = async () => {
    await agent.rows(forgetting(next()));
    const isAnswered = answerTo(agent.update(OPEN_UPDATE));
    return async () => (await isAnswered()) && (await created()) === CONNECTIONS;
  };
  // The row, and a worker that is woken; two, when commands wait together and the sweep has begun one of them.
  expect([2, 3]).toContain(await walk.through('reconcileConnections', putCommand, 4));
  expect(await walk.through('kickDue', putOpening, 3)).toBe(1);

  await walk.survivor();
  expect(await agreement(agent)).toHaveLength(CONNECTIONS);
  expect(await agent.events()).toEqual([]);
}, 480_000);

test('N1 N13 N16 a process that dies after any step of a sweep: the next one does what is left of it', async () => {
  const deleted: string[] = [];
  const put = async () => {
    await endDeadSweep();
    const [unwoken, missing, gone] = [next(), next(), next()];
    deleted.push(gone);
    // In one transaction, so that one sweep has all of it to do.
    await agent.slot.db.query(`
      ${forgetting(unwoken)};
      DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = '${missing}';
      UPDATE subscriptions.connections SET is_deleted = true WHERE conn_id = '${gone}';
      INSERT INTO subscriptions.events (agent_id, kind, errors)
      VALUES ('${AGENT}', 'ERRS', '[{"connId": "${gone}", "error": "NTF NEW"}]')`);
    return async () => (await isSwept()) && (await created()) === CONNECTIONS - deleted.length;
  };
  // A worker and two commands. A sweep that came in between may have done some of it.
  expect(await walk.through('reconcile', put, 11)).toBeGreaterThanOrEqual(2);

  await walk.survivor();
  await endDeadSweep();
  const left = await agreement(agent);
  expect(left).toHaveLength(CONNECTIONS - deleted.length);
  expect(left.filter(({ conn_id: connId }) => deleted.includes(connId))).toEqual([]);
  await eventually('everything to be swept', isSwept, 120_000);
  expect(await agent.events()).toEqual(
    deleted.map((connId) => ({
      kind: 'ERRS',
      errors: [{ connId, error: 'NTF NEW' }],
      offers_restart: false,
    })),
  );
  // At least once each: who dies between the stream and the row tells it again.
  const entries = await agent.slot.redis.xrange('notification:subscription-events', '-', '+');
  const told = entries.map(([, fields]) => fields[fields.indexOf('errors_json') + 1]!);
  expect(new Set(told)).toEqual(
    new Set(deleted.map((connId) => JSON.stringify([{ error: 'NTF NEW', connId }]))),
  );
}, 480_000);

/** Nothing is left that only a sweep does. */
async function isSwept(): Promise<boolean> {
  const [row] = await agent.rows<{ left: number }>(`
    SELECT (SELECT count(*) FROM subscriptions.connections WHERE is_deleted)
           + (SELECT count(*) FROM subscriptions.events WHERE relayed_at IS NULL) AS left`);
  return Number(row!.left) === 0;
}

/** One that died with its process is missed after a minute; until then there is no other. */
async function endDeadSweep(): Promise<void> {
  const sweeps = agent.slot.client.workflow.list({
    query: `ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '${SWEEP_SCHEDULE_ID}'`,
  });
  for await (const { workflowId } of sweeps) {
    const sweep = agent.slot.client.workflow.getHandle(workflowId);
    if (!(await isAtRest(sweep))) await sweep.terminate('its process is dead');
  }
}

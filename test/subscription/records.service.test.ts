/**
 * Commands of a supervisor, and the guard between it and the workers, on PostgreSQL itself: every operation, every outcome.
 */
import { createSubscriptionActivities } from '../../activities/subscription/activities.ts';
import { inEpoch, setAgentOpen } from '../../activities/subscription/agents.ts';
import type { WorkedRecord } from '../../activities/subscription/records.ts';
import {
  DELETE_WORKED_RECORDS,
  NULL_ACTIONS,
  claimBatch,
  updateRecords,
} from '../../activities/subscription/records.ts';
import { inTransaction, run } from '../../activities/postgres.ts';
import { createLogger } from '../../workers/logger.ts';
import type { WorkerPool } from '../../workflows/subscription/contract.ts';
import { poolWorkerWorkflowId } from '../../workflows/subscription/contract.ts';
import { slotOfTests, untilLocked } from '../harness.ts';

const AGENT = 'guard';
const SMP = { host: 'smp.example', port: 5_223 };
const SMP_2 = { host: 'smp2.example', port: 5_223 };
const OTHER_PORT = { ...SMP, port: 5_224 };
const NTF = { host: 'ntf.example', port: 443 };
const NTF_2 = { host: 'ntf2.example', port: 443 };
const NOW = Date.UTC(2_026, 0, 1);
const LATER = NOW + 1_000;

const slot = slotOfTests();
/** Workers that commands have woken. */
let woken: string[];
const serverRows = (servers: { host: string; port: number }[]) =>
  servers.map(({ host, port }) => `('${AGENT}', '${host}', ${port}, 'hash')`).join();
beforeEach(async () => {
  woken = [];
  await slot.db.query(`
    DELETE FROM subscriptions.connections;
    DELETE FROM subscriptions.agents;
    INSERT INTO subscriptions.agents (agent_id) VALUES ('${AGENT}'), ('other');
    INSERT INTO subscriptions.smp_servers VALUES ${serverRows([SMP, SMP_2, OTHER_PORT])};
    INSERT INTO subscriptions.ntf_servers VALUES ${serverRows([NTF, NTF_2])};
    INSERT INTO subscriptions.smp_servers SELECT 'other', host, port, key_hash FROM subscriptions.smp_servers;
    INSERT INTO subscriptions.ntf_servers SELECT 'other', host, port, key_hash FROM subscriptions.ntf_servers;
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id)
    SELECT agent_id, 'c' || n, 1 FROM subscriptions.agents, generate_series(0, 150) AS n;
    INSERT INTO subscriptions.rcv_queues (agent_id, conn_id, host, port, rcv_id, rcv_private_key)
    SELECT agent_id, conn_id, '${SMP.host}', ${SMP.port}, agent_id || conn_id, '' FROM subscriptions.connections`);
});
afterEach(async () => {
  const { rows: changedOfOthers } = await slot.db.query(
    "SELECT * FROM subscriptions.ntf_subscriptions WHERE agent_id = 'other' AND (generation, claim) <> (0, 0)",
  );
  expect(changedOfOthers).toEqual([]);
});

async function rowOf(connId = 'c1'): Promise<Record<string, unknown> | undefined> {
  const { rows } = await slot.db.query<Record<string, unknown>>(
    `SELECT smp_host, smp_ntf_id, ntf_host, ntf_sub_id, status, ntf_action, smp_action,
            round(extract(epoch FROM action_ts) * 1000)::float8 AS action_ms, ntf_failed, smp_failed
       FROM subscriptions.ntf_subscriptions WHERE agent_id = $1 AND conn_id = $2`,
    [AGENT, connId],
  );
  return rows[0];
}

/** Makes records of both agents as they are before workers of their routers have done anything about them: a key is next. */
const create = (...connIds: string[]) =>
  slot.db.query(
    `INSERT INTO subscriptions.ntf_subscriptions
            (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, smp_action, action_ts)
     SELECT agent_id, id, 1, $1, $2, $3, $4, 'NEW', 'K', to_timestamp($5::float8 / 1000)
       FROM subscriptions.agents, unnest($6::text[]) AS id`,
    [SMP.host, SMP.port, NTF.host, NTF.port, NOW, connIds],
  );

/** A value in SQL. */
const text = (value: string | null) => (value === null ? 'NULL' : `'${value}'`);
const change = (assignment: string) =>
  slot.db.query(`UPDATE subscriptions.ntf_subscriptions SET ${assignment}`);

/** Without a token no subscription is wanted: what there is is ended. */
const supervisorWrites = (connIds = ['c1']) =>
  createSubscriptionActivities({
    ...{ db: slot.db, log: createLogger('silent') },
    workflows: {
      signalWithStart: async (_type: string, { workflowId }: { workflowId: string }) =>
        woken.push(workflowId),
    },
  } as unknown as Parameters<typeof createSubscriptionActivities>[0]).reconcileConnections(
    AGENT,
    { connIds },
    LATER,
  );

const WORKED: WorkedRecord = {
  ...{ connId: 'c1', notifierId: 'n1', subscriptionId: 's1', status: 'CREATED NEW' },
  ...{ ntfServer: NTF_2, action: 'ntf-check', actionMs: LATER },
};

const pickUp = (pool: WorkerPool = 'ntf-smp', server = SMP, nowMs = NOW) =>
  claimBatch(slot.db, { agentId: AGENT, pool, server, nowMs }, 150);

// What a worker that has picked records up writes.
const update = (claim: number) =>
  inTransaction(slot.db, (client) => updateRecords(client, { agentId: AGENT, claim }, [WORKED]));
const nullActions = (claim: number, connIds = ['c1']) =>
  inTransaction(slot.db, (client) => run(client, NULL_ACTIONS, [AGENT, claim, connIds]));
const deleteRecords = (claim: number, connIds = ['c1']) =>
  inTransaction(slot.db, (client) => run(client, DELETE_WORKED_RECORDS, [AGENT, claim, connIds]));

const FRESH = {
  smp_host: SMP.host,
  smp_ntf_id: null,
  ntf_host: NTF.host,
  ntf_sub_id: null,
  status: 'NEW',
  ntf_action: null,
  smp_action: 'K',
  action_ms: NOW,
  ntf_failed: false,
  smp_failed: false,
};

describe('a command about connections that want notifications', () => {
  beforeEach(() =>
    slot.db.query(
      `INSERT INTO subscriptions.ntf_tokens
              (agent_id, provider, device_token, host, port, token_id, auth_public_key, auth_private_key, dh_public_key,
               dh_private_key, status, action, mode)
       VALUES ($1, 'AT', '', $2, $3, 't', '', '', '', '', 'ACTIVE', 'CHECK', 'INSTANT')`,
      [AGENT, NTF_2.host, NTF_2.port],
    ),
  );

  const MADE = { ...FRESH, ntf_host: NTF_2.host, action_ms: LATER };
  const workerOf = (pool: WorkerPool, server = SMP) => poolWorkerWorkflowId({ agentId: AGENT, pool, server });
  const give = (notifierId: string | null) =>
    slot.db.query(
      `UPDATE subscriptions.rcv_queues
          SET ntf_id = $1, ntf_public_key = $1, ntf_private_key = convert_to($1, 'UTF8'),
              rcv_ntf_dh_secret = convert_to($1, 'UTF8')
        WHERE conn_id = 'c1'`,
      [notifierId],
    );

  test.each([null, 'n1'])(
    'N1 N17 scenario 24: a connection without a record gets one, with credentials (%s) or without',
    async (notifierId) => {
      await give(notifierId);
      await supervisorWrites();
      expect(await rowOf()).toEqual(MADE);
      expect(woken).toEqual([workerOf('ntf-smp')]);
    },
  );

  const CHECK = "ntf_action = 'C', smp_action = NULL";
  test.each([
    ['another notifier id', 'n1', `smp_ntf_id = 'n2', ${CHECK}`],
    ['another port', 'n1', `smp_ntf_id = 'n1', smp_port = ${OTHER_PORT.port}, ${CHECK}`],
    [
      'another host',
      'n1',
      `smp_ntf_id = 'n1', smp_host = '${SMP_2.host}', ntf_action = 'N', smp_action = NULL`,
    ],
    ['credentials of the queue alone', 'n1', "ntf_sub_id = 's'"],
    ['an id of the record alone', null, `smp_ntf_id = 'n1', ${CHECK}`],
    ['no action, with ids', 'n1', "smp_ntf_id = 'n1', smp_action = NULL, action_ts = NULL"],
    ['no action, without ids', null, 'smp_action = NULL, action_ts = NULL'],
    ['an NTF delete', 'n1', "smp_ntf_id = 'n1', ntf_action = 'D', smp_action = NULL"],
    ['an NTF rotate', 'n1', "smp_ntf_id = 'n1', ntf_action = 'R', smp_action = NULL"],
    ['an SMP delete', 'n1', "smp_ntf_id = 'n1', smp_action = 'D'"],
    ['an SMP delete without ids', null, "smp_action = 'D'"],
    // The worker of the queue's router would not find it.
    ['a key on another router', null, `smp_host = '${SMP_2.host}'`],
    [
      'a creation on another router',
      null,
      `smp_port = ${OTHER_PORT.port}, ntf_action = 'N', smp_action = NULL`,
    ],
    ['a key that no worker could read', null, 'smp_failed = true'],
    ['a check that no worker could read', 'n1', `smp_ntf_id = 'n1', ntf_failed = true, ${CHECK}`],
  ])('N1 N6 N17 scenario 24: %s is a reset', async (_, notifierId, changes) => {
    await create('c1');
    await give(notifierId);
    await change(`status = 'KEY', ${changes}`);
    await supervisorWrites();
    expect(await rowOf()).toEqual(MADE);
    expect(woken).toEqual([workerOf('ntf-smp')]);
  });

  test.each([
    [null, 'K', workerOf('ntf-smp')],
    ['N', null, workerOf('ntf-ntf', NTF)],
    ['C', null, workerOf('ntf-ntf', NTF)],
  ])(
    'N1 N17 scenario 24: NTF %s, SMP %s goes on, with its worker, whatever its fingerprint',
    async (ntf, smp, worker) => {
      await slot.db.query("UPDATE subscriptions.rcv_queues SET server_key_hash = 'another'");
      await create('c1');
      for (const id of [null, 'n1']) {
        await give(id);
        await change(`smp_ntf_id = ${text(id)}, ntf_action = ${text(ntf)}, smp_action = ${text(smp)}`);
        const before = await rowOf();
        await supervisorWrites();
        expect(await rowOf()).toEqual(before);
      }
      expect(woken).toEqual([worker, worker]);
    },
  );

  test('N14 a reset wins over what a worker that has picked the record up writes', async () => {
    await create('c1');
    const { claim } = await pickUp();
    await give('n9');
    await supervisorWrites();
    await update(claim);
    expect(await rowOf()).toMatchObject({ ntf_action: null, smp_action: 'K', action_ms: LATER });
  });

  test('N9 N17 scenario 25: with a token that cannot be used, one that waited writes nothing', async () => {
    await slot.db.query("UPDATE subscriptions.ntf_tokens SET status = 'REGISTERED'");
    await create('c2');
    await change(CHECK);
    const before = await rowOf('c2');
    await supervisorWrites(['c1', 'c2']);
    expect([await rowOf('c1'), await rowOf('c2'), woken]).toEqual([undefined, before, []]);
  });

  test('subscription-B5 N1 makes none for what is switched off or deleted', async () => {
    await slot.db.query(`
      UPDATE subscriptions.connections SET enable_ntfs = false WHERE conn_id = 'c1';
      UPDATE subscriptions.connections SET is_deleted = true WHERE conn_id = 'c2'`);
    await supervisorWrites(['c1', 'c2']);
    expect([await rowOf('c1'), await rowOf('c2'), woken]).toEqual([undefined, undefined, []]);
  });

  test('N1 N14 goes on from what a worker is about to commit', async () => {
    await create('c1');
    const worker = await slot.db.connect();
    await worker.query(`
      BEGIN;
      UPDATE subscriptions.ntf_subscriptions SET status = 'KEY', smp_ntf_id = 'n1', ntf_action = 'N', smp_action = NULL;
      UPDATE subscriptions.rcv_queues
         SET ntf_id = 'n1', ntf_public_key = 'p', ntf_private_key = 'k', rcv_ntf_dh_secret = 's' WHERE conn_id = 'c1'`);
    const applied = supervisorWrites();
    await untilLocked(slot.db);
    await worker.query('COMMIT');
    worker.release();
    await applied;
    expect(await rowOf()).toMatchObject({ smp_ntf_id: 'n1', ntf_action: 'N' });
    expect(woken).toEqual([workerOf('ntf-ntf', NTF)]);
  });
});

test('N14 setting an action alone leaves ids and status; without a record it does nothing', async () => {
  await supervisorWrites();
  expect(await rowOf()).toBeUndefined();
  await create('c1');
  await change("smp_ntf_id = 'n1', status = 'KEY', ntf_action = 'N', smp_action = NULL");
  await supervisorWrites();
  expect(await rowOf()).toEqual({
    ...FRESH,
    smp_ntf_id: 'n1',
    status: 'KEY',
    smp_action: 'D',
    action_ms: LATER,
  });
});

describe('what a worker writes', () => {
  test('N14 goes through whole when the supervisor has not written since', async () => {
    await create('c1', 'c2');
    const { claim } = await pickUp();
    expect([await update(claim), await rowOf('c2')]).toEqual([['c1'], FRESH]);
    expect(await rowOf()).toEqual({
      ...FRESH,
      smp_ntf_id: 'n1',
      ntf_host: NTF_2.host,
      ntf_sub_id: 's1',
      status: 'CREATED NEW',
      ntf_action: 'C',
      smp_action: null,
      action_ms: LATER,
    });
  });

  test('N14 brings ids and status only when it has; the next write then counts whole again', async () => {
    await create('c1');
    const { claim } = await pickUp();
    await supervisorWrites();
    await update(claim);
    expect(await rowOf()).toEqual({
      ...FRESH,
      smp_ntf_id: 'n1',
      ntf_sub_id: 's1',
      status: 'CREATED NEW',
      smp_action: 'D',
      action_ms: LATER,
    });
    await update(claim);
    expect(await rowOf()).toMatchObject({ ntf_host: NTF_2.host, ntf_action: 'C', smp_action: null });
  });

  test('N14 has no effect without a record', async () => {
    await create('c1');
    const { claim } = await pickUp();
    await slot.db.query("DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = 'c1'");
    await nullActions(claim);
    await deleteRecords(claim);
    expect(await update(claim)).toEqual([]);
    expect(await rowOf()).toBeUndefined();
  });

  test('N14 has no effect under a claim that another one has replaced', async () => {
    await create('c1');
    const { claim } = await pickUp();
    await pickUp();
    await nullActions(claim);
    await deleteRecords(claim);
    await update(claim);
    expect(await rowOf()).toEqual(FRESH);
  });

  test('N14 N6 nulls an action, unless the supervisor has written since', async () => {
    await create('c1', 'c2', 'c3');
    const { claim } = await pickUp();
    await supervisorWrites();
    await nullActions(claim, ['c1', 'c2']);
    expect(await rowOf()).toMatchObject({ smp_action: 'D', action_ms: LATER });
    expect(await rowOf('c2')).toMatchObject({ smp_action: null, ntf_action: null, action_ms: null });
    expect(await rowOf('c3')).toEqual(FRESH);
  });

  test('N14 deletes a record, and leaves a tombstone when the supervisor has written since', async () => {
    await create('c1', 'c2', 'c3', 'c4');
    await change('smp_ntf_id = conn_id');
    const { claim } = await pickUp();
    await supervisorWrites(['c1', 'c3']);
    await deleteRecords(claim, ['c1', 'c2']);
    expect(await rowOf()).toEqual({ ...FRESH, status: 'DELETED', smp_action: 'D', action_ms: LATER });
    expect(await rowOf('c2')).toBeUndefined();
    expect([await rowOf('c3'), await rowOf('c4')]).toMatchObject([{ status: 'NEW' }, { status: 'NEW' }]);
    // It is not held any more: what is to be done is picked up, and deletes it.
    const next = await pickUp();
    expect(next.items).toContainEqual({ id: 'c1', kind: 'smp-delete' });
    await deleteRecords(next.claim);
    expect(await rowOf()).toBeUndefined();
  });
});

describe('a pick-up', () => {
  test('N14 N3 of a notification router takes what is due, the oldest first, and tells when the next check is', async () => {
    await create('c1', 'c2', 'c3', 'c4');
    await change(`
      ntf_action = split_part('C C N R', ' ', substr(conn_id, 2)::int), smp_action = NULL, smp_ntf_id = conn_id,
      action_ts = action_ts + (2 - substr(conn_id, 2)::int) * interval '1 hour'`);
    // c1 is due in an hour, c2 now, c3 an hour ago, c4 two hours ago.
    const { items, nextDueMs } = await pickUp('ntf-ntf', NTF);
    expect(items).toEqual([
      { id: 'c4', kind: 'ntf-rotate' },
      { id: 'c3', kind: 'ntf-create' },
      { id: 'c2', kind: 'ntf-check' },
    ]);
    expect(nextDueMs).toBeUndefined();
    await slot.db.query("DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id <> 'c1'");
    expect(await pickUp('ntf-ntf', NTF)).toMatchObject({ items: [], nextDueMs: NOW + 3_600_000 });
    expect((await pickUp('ntf-ntf', NTF, NOW + 3_599_999)).items).toEqual([]);
    expect((await pickUp('ntf-ntf', NTF, NOW + 3_600_000)).items).toMatchObject([{ id: 'c1' }]);
    expect((await pickUp('ntf-ntf', NTF_2)).items).toEqual([]);
  });

  test('N14 of a messaging router does not look at the time, and takes no more than a batch', async () => {
    await create(...Array.from({ length: 151 }, (_, index) => `c${index}`));
    await change("action_ts = now() + interval '1 day'");
    expect((await pickUp()).items).toHaveLength(150);
    expect((await pickUp('ntf-smp', SMP_2)).items).toHaveLength(0);
  });
});

test('N13 N14 nothing of an earlier epoch is written once the agent was closed', async () => {
  const guarded = (epoch: number) =>
    inEpoch(slot.db, { agentId: AGENT, epoch }, (client) =>
      client.query('UPDATE subscriptions.ntf_subscriptions SET user_id = 2'),
    );
  await create('c1');
  const closed = await setAgentOpen(slot.db, AGENT, false);
  await expect(guarded(0)).rejects.toMatchObject({ type: 'SubscriptionClosed', nonRetryable: true });
  await expect(guarded(closed.epoch)).rejects.toMatchObject({ type: 'SubscriptionClosed' });
  const opened = await setAgentOpen(slot.db, AGENT, true);
  expect(opened.epoch).toBe(2);
  expect((await setAgentOpen(slot.db, AGENT, true)).epoch).toBe(2);
  await expect(guarded(0)).rejects.toMatchObject({ type: 'SubscriptionClosed' });
  const users = async () =>
    (await slot.db.query<{ user_id: number }>('SELECT DISTINCT user_id FROM subscriptions.ntf_subscriptions'))
      .rows;
  expect(await users()).toEqual([{ user_id: 1 }]);
  await guarded(opened.epoch);
  expect(await users()).toEqual([{ user_id: 2 }]);
});

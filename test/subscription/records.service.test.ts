/** The guard between the supervisor and the workers, on PostgreSQL itself: every operation, every outcome. */
import { requireEpoch, setAgentOpen } from '../../activities/subscription/agents.ts';
import { claimBatch } from '../../activities/subscription/claims.ts';
import type { NewRecord, WorkedRecord } from '../../activities/subscription/records.ts';
import {
  createRecords,
  deleteWorkedRecords,
  nullActions,
  resetRecords,
  setActions,
  updateRecords,
} from '../../activities/subscription/records.ts';
import { inTransaction, saveIsolated } from '../../activities/transactions.ts';
import { createOperator } from '../../client/operator.ts';
import type { WorkerPool } from '../../workflows/subscription/contract.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';

const AGENT = 'guard';
const SMP = { host: 'smp.example', port: 5_223, keyHash: 'smp-hash' };
const SMP_2 = { host: 'smp2.example', port: 5_223, keyHash: 'smp2-hash' };
const NTF = { host: 'ntf.example', port: 443 };
const NTF_2 = { host: 'ntf2.example', port: 443 };
const NOW = Date.UTC(2_026, 0, 1);
const LATER = NOW + 1_000;

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());
beforeEach(async () => {
  await slot.db.query('DELETE FROM subscriptions.connections');
  await slot.db.query('DELETE FROM subscriptions.agents');
  await slot.db.query(`INSERT INTO subscriptions.agents (agent_id) VALUES ('${AGENT}')`);
  for (const { host, port, keyHash } of [SMP, SMP_2]) {
    await slot.db.query('INSERT INTO subscriptions.smp_servers VALUES ($1, $2, $3, $4)', [
      AGENT,
      host,
      port,
      keyHash,
    ]);
  }
  await slot.db.query(`
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id)
    SELECT '${AGENT}', 'c' || n, 1 FROM generate_series(0, 150) AS n;
    INSERT INTO subscriptions.rcv_queues (agent_id, conn_id, host, port, rcv_id, rcv_private_key)
    SELECT agent_id, conn_id, '${SMP.host}', ${SMP.port}, conn_id, '' FROM subscriptions.connections`);
  for (const { host, port } of [NTF, NTF_2]) {
    await slot.db.query("INSERT INTO subscriptions.ntf_servers VALUES ($1, $2, $3, 'h')", [
      AGENT,
      host,
      port,
    ]);
  }
});

type Row = Record<string, unknown>;

const rowOf = async (connId = 'c1'): Promise<Row | undefined> =>
  (
    await slot.db.query<Row>(
      `SELECT smp_host, smp_ntf_id, ntf_host, ntf_sub_id, status, ntf_action, smp_action,
              round(extract(epoch FROM action_ts) * 1000)::float8 AS action_ms, ntf_failed, smp_failed
         FROM subscriptions.ntf_subscriptions WHERE agent_id = $1 AND conn_id = $2`,
      [AGENT, connId],
    )
  ).rows[0];

const newRecord = (changes: Partial<NewRecord> = {}): NewRecord => ({
  connId: 'c1',
  userId: 1,
  smpServer: SMP,
  ntfServer: NTF,
  status: 'NEW',
  action: 'smp-key',
  ...changes,
});

const worked = (changes: Partial<WorkedRecord> = {}): WorkedRecord => ({
  connId: 'c1',
  notifierId: 'n1',
  subscriptionId: 's1',
  status: 'CREATED NEW',
  ntfServer: NTF_2,
  action: 'ntf-check',
  actionMs: LATER,
  ...changes,
});

const create = (...records: NewRecord[]) =>
  inTransaction(slot.db, (client) => createRecords(client, AGENT, records, NOW));
const pickUp = (
  pool: WorkerPool = 'ntf-smp',
  server: { host: string; port: number } = SMP,
  nowMs = NOW,
  limit = 150,
) => claimBatch(slot.db, { agentId: AGENT, pool, server, nowMs }, limit);
const supervisorWrites = () =>
  inTransaction(slot.db, (client) => setActions(client, AGENT, ['c1'], 'smp-delete', LATER));

const operatorOf = () =>
  createOperator({
    temporal: slot.client,
    namespace: slot.client.options.namespace,
    db: slot.db,
    redis: slot.redis,
    intentsStream: 'notification:intents',
    agentId: AGENT,
  });

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

test('N14 creating makes a record; a second one, and one on an unknown server, are refused each for itself', async () => {
  await create(newRecord());
  expect(await rowOf()).toEqual(FRESH);
  const refused = await inTransaction(slot.db, (client) =>
    saveIsolated(
      client,
      [
        newRecord({ connId: 'c2' }),
        newRecord(),
        newRecord({ connId: 'c3', smpServer: { ...SMP, port: 1 } }),
        newRecord({ connId: 'c4' }),
      ],
      (some) => createRecords(client, AGENT, some, NOW),
    ),
  );
  expect(refused.map(({ item }) => item.connId)).toEqual(['c1', 'c3']);
  expect(await rowOf('c2')).toEqual(FRESH);
  expect(await rowOf('c4')).toEqual(FRESH);
});

test('N14 a reset takes ids, status, addresses and action over, and sets the failed flags back', async () => {
  await create(newRecord());
  await slot.db.query(
    `UPDATE subscriptions.ntf_subscriptions
        SET smp_ntf_id = 'n', ntf_sub_id = 's', status = 'CREATED END', ntf_failed = true, smp_failed = true`,
  );
  const record = newRecord({ smpServer: SMP_2, ntfServer: NTF_2 });
  await inTransaction(slot.db, (client) => resetRecords(client, AGENT, [record], LATER));
  expect(await rowOf()).toEqual({ ...FRESH, smp_host: SMP_2.host, ntf_host: NTF_2.host, action_ms: LATER });
});

test('N14 setting an action alone leaves ids and status; without a record it does nothing', async () => {
  await supervisorWrites();
  expect(await rowOf()).toBeUndefined();
  await create(newRecord({ notifierId: 'n1', status: 'KEY', action: 'ntf-create' }));
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
    await create(newRecord());
    const { claim } = await pickUp();
    const ours = await inTransaction(slot.db, (client) =>
      updateRecords(client, { agentId: AGENT, claim }, [worked()]),
    );
    expect(ours).toEqual(['c1']);
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
    await create(newRecord());
    const { claim } = await pickUp();
    await supervisorWrites();
    const owner = { agentId: AGENT, claim };
    await inTransaction(slot.db, (client) => updateRecords(client, owner, [worked()]));
    expect(await rowOf()).toEqual({
      ...FRESH,
      smp_ntf_id: 'n1',
      ntf_sub_id: 's1',
      status: 'CREATED NEW',
      smp_action: 'D',
      action_ms: LATER,
    });
    await inTransaction(slot.db, (client) => updateRecords(client, owner, [worked()]));
    expect(await rowOf()).toMatchObject({ ntf_host: NTF_2.host, ntf_action: 'C', smp_action: null });
  });

  test('N14 has no effect without a record', async () => {
    await create(newRecord());
    const { claim } = await pickUp();
    const owner = { agentId: AGENT, claim };
    await slot.db.query("DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = 'c1'");
    const ours = await inTransaction(slot.db, async (client) => {
      await nullActions(client, owner, ['c1']);
      await deleteWorkedRecords(client, owner, ['c1']);
      return updateRecords(client, owner, [worked()]);
    });
    expect(ours).toEqual([]);
    expect(await rowOf()).toBeUndefined();
  });

  test('N14 has no effect under a claim that another one has replaced', async () => {
    await create(newRecord());
    const { claim } = await pickUp();
    await pickUp();
    const owner = { agentId: AGENT, claim };
    await inTransaction(slot.db, async (client) => {
      await nullActions(client, owner, ['c1']);
      await deleteWorkedRecords(client, owner, ['c1']);
      await updateRecords(client, owner, [worked()]);
    });
    expect(await rowOf()).toEqual(FRESH);
  });

  test('N14 N6 nulls an action, unless the supervisor has written since', async () => {
    await create(newRecord(), newRecord({ connId: 'c2' }));
    const { claim } = await pickUp();
    await supervisorWrites();
    await inTransaction(slot.db, (client) => nullActions(client, { agentId: AGENT, claim }, ['c1', 'c2']));
    expect(await rowOf()).toMatchObject({ smp_action: 'D', action_ms: LATER });
    expect(await rowOf('c2')).toMatchObject({ smp_action: null, ntf_action: null, action_ms: null });
  });

  test('N14 deletes a record, and leaves a tombstone when the supervisor has written since', async () => {
    await create(newRecord({ notifierId: 'n1' }), newRecord({ connId: 'c2' }));
    const { claim } = await pickUp();
    await supervisorWrites();
    await inTransaction(slot.db, (client) =>
      deleteWorkedRecords(client, { agentId: AGENT, claim }, ['c1', 'c2']),
    );
    expect(await rowOf()).toEqual({ ...FRESH, status: 'DELETED', smp_action: 'D', action_ms: LATER });
    expect(await rowOf('c2')).toBeUndefined();
    // It is not held any more: what is to be done is picked up, and deletes it.
    const next = await pickUp();
    expect(next.items).toEqual([{ id: 'c1', kind: 'smp-delete' }]);
    const owner = { agentId: AGENT, claim: next.claim };
    await inTransaction(slot.db, (client) => deleteWorkedRecords(client, owner, ['c1']));
    expect(await rowOf()).toBeUndefined();
  });
});

test('N14 a record goes with its queue, and none is made without one', async () => {
  await create(newRecord());
  await slot.db.query("DELETE FROM subscriptions.connections WHERE conn_id = 'c1'");
  expect(await rowOf()).toBeUndefined();
  await expect(create(newRecord())).rejects.toThrow('ntf_subscriptions_agent_id_conn_id_fkey');
});

describe('a pick-up', () => {
  test('N14 N3 of a notification router takes what is due, the oldest first, and tells when the next check is', async () => {
    const ntf = (connId: string, action: NewRecord['action']) =>
      newRecord({ connId, action, notifierId: connId });
    await create(
      ntf('c1', 'ntf-check'),
      ntf('c2', 'ntf-check'),
      ntf('c3', 'ntf-create'),
      ntf('c4', 'ntf-rotate'),
    );
    await slot.db.query(
      `UPDATE subscriptions.ntf_subscriptions
          SET action_ts = to_timestamp($1::float8 / 1000) + (substr(conn_id, 2)::int - 2) * interval '-1 hour'
        WHERE agent_id = $2`,
      [NOW, AGENT],
    );
    const ids = ({ items }: Awaited<ReturnType<typeof pickUp>>) => items.map(({ id }) => id);
    // c1 is due in an hour, c2 now, c3 an hour ago, c4 two hours ago.
    const first = await pickUp('ntf-ntf', NTF);
    expect(first.items).toEqual([
      { id: 'c4', kind: 'ntf-rotate' },
      { id: 'c3', kind: 'ntf-create' },
      { id: 'c2', kind: 'ntf-check' },
    ]);
    expect(first.nextDueMs).toBeUndefined();
    await slot.db.query("DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id <> 'c1'");
    expect(await pickUp('ntf-ntf', NTF)).toMatchObject({ items: [], nextDueMs: NOW + 3_600_000 });
    expect(ids(await pickUp('ntf-ntf', NTF, NOW + 3_599_999))).toEqual([]);
    expect(ids(await pickUp('ntf-ntf', NTF, NOW + 3_600_000))).toEqual(['c1']);
    expect(ids(await pickUp('ntf-ntf', NTF_2))).toEqual([]);
  });

  test('N14 of a messaging router does not look at the time, and takes no more than a batch', async () => {
    await create(...Array.from({ length: 151 }, (_, index) => newRecord({ connId: `c${index}` })));
    await slot.db.query("UPDATE subscriptions.ntf_subscriptions SET action_ts = now() + interval '1 day'");
    expect((await pickUp()).items).toHaveLength(150);
    expect((await pickUp('ntf-smp', SMP_2)).items).toHaveLength(0);
  });

  test('N14 a record has one action with its time, or neither: PostgreSQL refuses anything else', async () => {
    await create(newRecord());
    for (const change of ["ntf_action = 'C'", 'action_ts = NULL', 'smp_action = NULL']) {
      await expect(slot.db.query(`UPDATE subscriptions.ntf_subscriptions SET ${change}`)).rejects.toThrow(
        'ntf_subscriptions_one_action_at_a_time',
      );
    }
  });
});

test('N13 N14 nothing of an earlier epoch is written once the agent was closed', async () => {
  const guarded = (epoch: number) =>
    inTransaction(slot.db, async (client) => {
      await requireEpoch(client, AGENT, epoch);
      await createRecords(client, AGENT, [newRecord()], NOW);
    });
  const closed = await setAgentOpen(slot.db, AGENT, false);
  await expect(guarded(0)).rejects.toMatchObject({ type: 'SubscriptionClosed', nonRetryable: true });
  await expect(guarded(closed.epoch)).rejects.toMatchObject({ type: 'SubscriptionClosed' });
  const opened = await setAgentOpen(slot.db, AGENT, true);
  expect(opened.epoch).toBe(2);
  expect((await setAgentOpen(slot.db, AGENT, true)).epoch).toBe(2);
  await expect(guarded(0)).rejects.toMatchObject({ type: 'SubscriptionClosed' });
  expect(await rowOf()).toBeUndefined();
  await guarded(opened.epoch);
  expect(await rowOf()).toEqual(FRESH);
});

test('N16 a connection without a queue and a record is shown without routers', async () => {
  await slot.db.query("DELETE FROM subscriptions.rcv_queues WHERE conn_id = 'c1'");
  expect(await operatorOf().subscriptions.show('c1')).toEqual({
    connId: 'c1',
    userId: 1,
    wantsNotifications: true,
    isUnreadable: false,
    hasCredentials: false,
    updatedAt: expect.any(Date),
  });
});

test('N14 a connection that breaks between two statements of a transaction undoes it, and ends nothing else', async () => {
  const broken = inTransaction(slot.db, async (client) => {
    await createRecords(client, AGENT, [newRecord()], NOW);
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    // Not by `once` of node:events, which would listen for the error as well.
    const heard = new Promise((resolve) => client.once('end', resolve));
    await slot.db.query('SELECT pg_terminate_backend($1)', [rows[0]!.pid]);
    await heard;
    await setActions(client, AGENT, ['c1'], 'smp-delete', LATER);
  });
  await expect(broken).rejects.toMatchObject({ type: 'PostgresUnavailable' });
  expect(await rowOf()).toBeUndefined();
});

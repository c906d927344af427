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
const SMP = { host: 'smp.example', port: 5_223, keyHash: 'smp-hash' };
const SMP_2 = { host: 'smp2.example', port: 5_223, keyHash: 'smp2-hash' };
const OTHER_PORT = { ...SMP, port: 5_224 };
const NTF = { host: 'ntf.example', port: 443 };
const NTF_2 = { host: 'ntf2.example', port: 443 };
const NOW = Date.UTC(2_026, 0, 1);
const LATER = NOW + 1_000;

const slot = slotOfTests();
/** Workers that commands have woken. */
let woken: string[];
beforeEach(async () => {
  woken = [];
  await slot.db.query('DELETE FROM subscriptions.connections');
  await slot.db.query('DELETE FROM subscriptions.agents');
  await slot.db.query(`INSERT INTO subscriptions.agents (agent_id) VALUES ('${AGENT}')`);
  for (const { host, port, keyHash } of [SMP, SMP_2, OTHER_PORT]) {
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

interface GivenRecord {
  connId?: string;
  notifierId?: string;
  status?: string;
  ntf?: 'N' | 'C' | 'R';
}

/** Makes records as they are before the workers of their routers have done anything about them; default: a key is next. */
async function create(...records: GivenRecord[]): Promise<void> {
  for (const { connId = 'c1', notifierId = null, status = 'NEW', ntf = null } of records) {
    await slot.db.query(
      `INSERT INTO subscriptions.ntf_subscriptions
              (agent_id, conn_id, user_id, smp_host, smp_port, smp_ntf_id, ntf_host, ntf_port, status, ntf_action,
               smp_action, action_ts)
       VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9, $10, to_timestamp($11::float8 / 1000))`,
      [
        ...[AGENT, connId, SMP.host, SMP.port, notifierId, NTF.host, NTF.port, status],
        ...[ntf, ntf === null ? 'K' : null, NOW],
      ],
    );
  }
}

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

const pickUp = (
  pool: WorkerPool = 'ntf-smp',
  server: { host: string; port: number } = SMP,
  nowMs = NOW,
  limit = 150,
) => claimBatch(slot.db, { agentId: AGENT, pool, server, nowMs }, limit);

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
  const workerOf = (pool: WorkerPool, server: { host: string; port: number }) =>
    poolWorkerWorkflowId({ agentId: AGENT, pool, server });
  const give = (notifierId: string | undefined) =>
    slot.db.query(
      `UPDATE subscriptions.rcv_queues
          SET ntf_id = $1, ntf_public_key = $1, ntf_private_key = convert_to($1, 'UTF8'),
              rcv_ntf_dh_secret = convert_to($1, 'UTF8')
        WHERE conn_id = 'c1'`,
      [notifierId ?? null],
    );

  test.each([undefined, 'n1'])(
    'N1 N17 scenario 24: a connection without a record gets one, with credentials (%s) or without',
    async (notifierId) => {
      await give(notifierId);
      await supervisorWrites();
      expect(await rowOf()).toEqual(MADE);
      expect(woken).toEqual([workerOf('ntf-smp', SMP)]);
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
    ['an id of the record alone', undefined, `smp_ntf_id = 'n1', ${CHECK}`],
    ['no action, with ids', 'n1', "smp_ntf_id = 'n1', smp_action = NULL, action_ts = NULL"],
    ['no action, without ids', undefined, 'smp_action = NULL, action_ts = NULL'],
    ['an NTF delete', 'n1', "smp_ntf_id = 'n1', ntf_action = 'D', smp_action = NULL"],
    ['an NTF rotate', 'n1', "smp_ntf_id = 'n1', ntf_action = 'R', smp_action = NULL"],
    ['an SMP delete', 'n1', "smp_ntf_id = 'n1', smp_action = 'D'"],
    ['an SMP delete without ids', undefined, "smp_action = 'D'"],
    // The worker of the queue's router would not find it.
    ['a key on another router', undefined, `smp_host = '${SMP_2.host}'`],
    [
      'a creation on another router',
      undefined,
      `smp_port = ${OTHER_PORT.port}, ntf_action = 'N', smp_action = NULL`,
    ],
    ['a key that no worker could read', undefined, 'smp_failed = true'],
    ['a check that no worker could read', 'n1', `smp_ntf_id = 'n1', ntf_failed = true, ${CHECK}`],
  ])('N1 N6 N17 scenario 24: %s is a reset', async (_, notifierId, changes) => {
    await create({ status: 'KEY' });
    await give(notifierId);
    await change(changes);
    await supervisorWrites();
    expect(await rowOf()).toEqual(MADE);
    expect(woken).toEqual([workerOf('ntf-smp', SMP)]);
  });

  test.each([
    [null, 'K', workerOf('ntf-smp', SMP)],
    ['N', null, workerOf('ntf-ntf', NTF)],
    ['C', null, workerOf('ntf-ntf', NTF)],
  ])(
    'N1 N17 scenario 24: NTF %s, SMP %s goes on, with its worker, whatever its fingerprint',
    async (ntf, smp, worker) => {
      await slot.db.query("UPDATE subscriptions.rcv_queues SET server_key_hash = 'another'");
      await create({});
      for (const id of [null, 'n1']) {
        await give(id ?? undefined);
        await slot.db.query(
          'UPDATE subscriptions.ntf_subscriptions SET smp_ntf_id = $1, ntf_action = $2, smp_action = $3',
          [id, ntf, smp],
        );
        const before = await rowOf();
        await supervisorWrites();
        expect(await rowOf()).toEqual(before);
      }
      expect(woken).toEqual([worker, worker]);
    },
  );

  test('N14 a reset wins over what a worker that has picked the record up writes', async () => {
    await create({});
    const { claim } = await pickUp();
    await give('n9');
    await supervisorWrites();
    await inTransaction(slot.db, (client) => updateRecords(client, { agentId: AGENT, claim }, [worked()]));
    expect(await rowOf()).toMatchObject({ ntf_action: null, smp_action: 'K', action_ms: LATER });
  });

  test('N9 N17 scenario 25: with a token that cannot be used, one that waited writes nothing', async () => {
    await slot.db.query("UPDATE subscriptions.ntf_tokens SET status = 'REGISTERED'");
    await create({ connId: 'c2', ntf: 'C' });
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
    await create({});
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
  await create({ notifierId: 'n1', status: 'KEY', ntf: 'N' });
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
    await create({});
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
    await create({});
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
    await create({});
    const { claim } = await pickUp();
    const owner = { agentId: AGENT, claim };
    await slot.db.query("DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = 'c1'");
    const ours = await inTransaction(slot.db, async (client) => {
      await run(client, NULL_ACTIONS, [AGENT, claim, ['c1']]);
      await run(client, DELETE_WORKED_RECORDS, [AGENT, claim, ['c1']]);
      return updateRecords(client, owner, [worked()]);
    });
    expect(ours).toEqual([]);
    expect(await rowOf()).toBeUndefined();
  });

  test('N14 has no effect under a claim that another one has replaced', async () => {
    await create({});
    const { claim } = await pickUp();
    await pickUp();
    const owner = { agentId: AGENT, claim };
    await inTransaction(slot.db, async (client) => {
      await run(client, NULL_ACTIONS, [AGENT, claim, ['c1']]);
      await run(client, DELETE_WORKED_RECORDS, [AGENT, claim, ['c1']]);
      await updateRecords(client, owner, [worked()]);
    });
    expect(await rowOf()).toEqual(FRESH);
  });

  test('N14 N6 nulls an action, unless the supervisor has written since', async () => {
    await create({}, { connId: 'c2' });
    const { claim } = await pickUp();
    await supervisorWrites();
    await inTransaction(slot.db, (client) => run(client, NULL_ACTIONS, [AGENT, claim, ['c1', 'c2']]));
    expect(await rowOf()).toMatchObject({ smp_action: 'D', action_ms: LATER });
    expect(await rowOf('c2')).toMatchObject({ smp_action: null, ntf_action: null, action_ms: null });
  });

  test('N14 deletes a record, and leaves a tombstone when the supervisor has written since', async () => {
    await create({ notifierId: 'n1' }, { connId: 'c2' });
    const { claim } = await pickUp();
    await supervisorWrites();
    await inTransaction(slot.db, (client) =>
      run(client, DELETE_WORKED_RECORDS, [AGENT, claim, ['c1', 'c2']]),
    );
    expect(await rowOf()).toEqual({ ...FRESH, status: 'DELETED', smp_action: 'D', action_ms: LATER });
    expect(await rowOf('c2')).toBeUndefined();
    // It is not held any more: what is to be done is picked up, and deletes it.
    const next = await pickUp();
    expect(next.items).toEqual([{ id: 'c1', kind: 'smp-delete' }]);
    await inTransaction(slot.db, (client) => run(client, DELETE_WORKED_RECORDS, [AGENT, next.claim, ['c1']]));
    expect(await rowOf()).toBeUndefined();
  });
});

describe('a pick-up', () => {
  test('N14 N3 of a notification router takes what is due, the oldest first, and tells when the next check is', async () => {
    await create(
      ...(['C', 'C', 'N', 'R'] as const).map((ntf, index) => ({
        connId: `c${index + 1}`,
        notifierId: `n${index}`,
        ntf,
      })),
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
    await create(...Array.from({ length: 151 }, (_, index) => ({ connId: `c${index}` })));
    await slot.db.query("UPDATE subscriptions.ntf_subscriptions SET action_ts = now() + interval '1 day'");
    expect((await pickUp()).items).toHaveLength(150);
    expect((await pickUp('ntf-smp', SMP_2)).items).toHaveLength(0);
  });
});

test('N13 N14 nothing of an earlier epoch is written once the agent was closed', async () => {
  const guarded = (epoch: number) =>
    inEpoch(slot.db, { agentId: AGENT, epoch }, (client) =>
      client.query('UPDATE subscriptions.ntf_subscriptions SET user_id = 2'),
    );
  await create({});
  const closed = await setAgentOpen(slot.db, AGENT, false);
  await expect(guarded(0)).rejects.toMatchObject({ type: 'SubscriptionClosed', nonRetryable: true });
  await expect(guarded(closed.epoch)).rejects.toMatchObject({ type: 'SubscriptionClosed' });
  const opened = await setAgentOpen(slot.db, AGENT, true);
  expect(opened.epoch).toBe(2);
  expect((await setAgentOpen(slot.db, AGENT, true)).epoch).toBe(2);
  await expect(guarded(0)).rejects.toMatchObject({ type: 'SubscriptionClosed' });
  const users = async () =>
    (await slot.db.query<{ user_id: number }>('SELECT user_id FROM subscriptions.ntf_subscriptions')).rows;
  expect(await users()).toEqual([{ user_id: 1 }]);
  await guarded(opened.epoch);
  expect(await users()).toEqual([{ user_id: 2 }]);
});

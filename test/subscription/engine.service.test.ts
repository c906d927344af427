/** Single connections on their way to a subscription, through its checks, and away again. */
import type { RouterFailure } from '../../dev/stand-ins/subscription/router-desk.ts';
import { KEY_BOX, agentOfTests } from './agent.ts';
import { eventually } from '../harness.ts';
import { keptByTemporal } from '../kept.ts';

const DAY = 24 * 3_600_000;

const agent = agentOfTests();
beforeAll(() => agent.startActive());
afterEach(() => agent.routers.heal());

const smp = () => agent.routers.smp[0]!;
const ntf = () => agent.routers.ntf[0]!;
const callsOf = (op: string, entity?: string) =>
  [...smp().calls, ...ntf().calls].filter(
    (call) => call.op === op && (entity === undefined || call.entity === entity),
  );

async function createOne(userId?: number): Promise<string> {
  const [connId] = await agent.createActive(1, smp().address, userId);
  return connId!;
}

/** Has the check of a subscription be due now. */
async function makeDue(connId: string): Promise<void> {
  await agent.rows(
    "UPDATE subscriptions.ntf_subscriptions SET action_ts = clock_timestamp() - interval '1 s' WHERE conn_id = $1",
    [connId],
  );
  await agent.worker('ntf-ntf', ntf().address).signal('work');
}

test('N1 N17 scenario 12: a new queue gets its key, then its subscription immediately, and its first check in a day', async () => {
  const before = callsOf('NKEY').length;
  const connId = await createOne(7);
  const row = (await agent.record(connId))!;
  const queue = await agent.queueOf(connId);
  expect(row).toMatchObject({
    user_id: 7,
    status: 'CREATED NEW',
    smp_port: smp().address.port,
    smp_ntf_id: queue.ntf_id,
    ntf_port: ntf().address.port,
    ntf_action: 'C',
    smp_action: null,
  });
  expect(row.action_ms! - Date.now()).toBeGreaterThan(DAY - 20_000);
  expect(row.action_ms! - Date.now()).toBeLessThanOrEqual(DAY);
  expect(queue.stored?.notifier?.notifierId).toBe(queue.ntf_id);
  expect(callsOf('NKEY')).toHaveLength(before + 1);
  const subscription = { subscriptionId: row.ntf_sub_id!, notifierId: queue.ntf_id! };
  expect(ntf().subscriptions()).toContainEqual(expect.objectContaining(subscription));
  await eventually('the notification router to be subscribed there', async () =>
    smp().subscribed().includes(queue.ntf_id!),
  );
});

test('N4 N17 scenario 30: by its status a subscription is kept for three days, or made again from the key on', async () => {
  const connId = await createOne();
  /** @returns its record before the check. */
  const checked = async (failure: RouterFailure) => {
    const before = (await agent.record(connId))!;
    ntf().fail({ failure, subject: `SCHK ${before.ntf_sub_id}`, times: 1 });
    await makeDue(connId);
    return before;
  };
  const before = await checked({ kind: 'answer', answer: { op: 'SUB', status: 'INACTIVE' } });
  const kept = await eventually('the check', async () => {
    const row = (await agent.record(connId))!;
    return row.status !== 'CREATED NEW' && row;
  });
  expect(kept).toMatchObject({ ntf_sub_id: before.ntf_sub_id, status: 'CREATED INACTIVE' });
  expect(kept.action_ms! - Date.now()).toBeGreaterThan(3 * DAY - 20_000);
  expect(kept.action_ms! - Date.now()).toBeLessThanOrEqual(3 * DAY);

  for (const failure of [
    { kind: 'answer', answer: { op: 'SUB', status: 'ERR something' } },
    // Its router has forgotten it.
    { kind: 'error', code: 'AUTH' },
  ] as const) {
    const keys = callsOf('NKEY').length;
    const former = await checked(failure);
    const after = await eventually('another subscription', async () => {
      const row = (await agent.record(connId))!;
      return row.status === 'CREATED NEW' && row.ntf_sub_id !== former.ntf_sub_id && row;
    });
    expect(callsOf('NKEY')).toHaveLength(keys + 1);
    expect(after.smp_ntf_id).not.toBe(former.smp_ntf_id);
    expect((await agent.queueOf(connId)).stored?.notifier?.notifierId).toBe(after.smp_ntf_id);
  }
  expect(await agent.events()).toEqual([]);
});

test('N10 switching off clears the credentials here, then there, then the record; switching on makes all of it again', async () => {
  const connId = await createOne();
  const before = (await agent.record(connId))!;
  const { rcv_id: queueId } = await agent.queueOf(connId);
  smp().fail({ failure: { kind: 'reset' }, subject: `NDEL ${queueId}` });
  expect(await agent.toggle([connId], false)).toEqual({ changed: 1, unknown: [] });
  await eventually('an NDEL that failed', async () => callsOf('NDEL', queueId).length > 1);
  // The router cannot be reached; here it is right already.
  expect((await agent.queueOf(connId)).ntf_id).toBeNull();
  expect(await agent.record(connId)).toMatchObject({ smp_action: 'D', smp_ntf_id: before.smp_ntf_id });
  smp().heal();
  await agent.gone(connId);
  expect((await agent.queueOf(connId)).stored?.notifier).toBeUndefined();
  await eventually('the notification router to hear of it', async () =>
    ntf()
      .subscriptions()
      .some(({ subscriptionId, status }) => subscriptionId === before.ntf_sub_id && status === 'DELETED'),
  );

  expect(await agent.toggle([connId], false)).toEqual({ changed: 0, unknown: [] });
  await agent.toggle([connId], true);
  await agent.active([connId]);
  expect((await agent.record(connId))!.smp_ntf_id).not.toBe(before.smp_ntf_id);
});

test('N8 N16 work is counted for each user, attempts and successes apart', async () => {
  /** Of users 41 and 42. */
  const counts = async (counter: string): Promise<number[]> => {
    const rows = await agent.rows<{ value: number }>(
      `SELECT coalesce(sum(value), 0)::float8 AS value
         FROM unnest(ARRAY[41, 42]) AS known (user_id)
         LEFT JOIN subscriptions.servers_stats AS stats ON stats.user_id = known.user_id AND counter = $1
        GROUP BY known.user_id ORDER BY known.user_id`,
      [counter],
    );
    return rows.map(({ value }) => value);
  };
  const connections = [41, 41, 42].map((userId) => ({ userId, server: smp().address }));
  ntf().fail({ failure: { kind: 'reset' }, subject: 'SNEW', times: 1 });
  const connIds = await agent.create(connections);
  await agent.active(connIds);
  expect(await counts('ntfCreated')).toEqual([2, 1]);
  const attempts = await counts('ntfCreateAttempts');
  expect(attempts[0]! + attempts[1]!).toBeGreaterThan(3);

  for (const connId of connIds) await makeDue(connId);
  await eventually('their checks', async () => String(await counts('ntfChecked')) === '2,1');
  expect(await counts('ntfCheckAttempts')).toEqual([2, 1]);

  await agent.toggle(connIds, false);
  await eventually('their end', async () => String(await counts('ntfKeyDeleted')) === '2,1');
  expect((await counts('ntfKeyDeleteAttempts'))[1]).toBe(1);
  await agent.toggle(connIds, true);
  await agent.active(connIds);
  expect([await counts('ntfKey'), await counts('ntfKeyAttempts')]).toEqual([
    [4, 2],
    [4, 2],
  ]);
});

test('N7 N17 scenario 34: old records: deletes and rotations go on after OK and AUTH, and wait otherwise', async () => {
  const connIds = await agent.createActive(6);
  const [deleted, rotated] = [connIds.slice(0, 3), connIds.slice(3)];
  const before = new Map((await agent.records()).map((row) => [row.conn_id, row.ntf_sub_id!]));
  const failures: (RouterFailure | undefined)[] = [
    undefined,
    { kind: 'error', code: 'AUTH' },
    { kind: 'silence' },
  ];
  for (const some of [deleted, rotated]) {
    for (const [index, failure] of failures.entries()) {
      if (failure) ntf().fail({ failure, subject: `SDEL ${before.get(some[index]!)}`, times: 1 });
    }
  }
  // Switched off, or the next sweep would bring the deleted ones back.
  await agent.rows('UPDATE subscriptions.connections SET enable_ntfs = false WHERE conn_id = ANY($1)', [
    deleted,
  ]);
  await agent.rows(
    `UPDATE subscriptions.ntf_subscriptions
        SET ntf_action = CASE WHEN conn_id = ANY($1) THEN 'D' ELSE 'R' END, action_ts = clock_timestamp()
      WHERE conn_id = ANY($2)`,
    [deleted, connIds],
  );
  await agent.worker('ntf-ntf', ntf().address).signal('work');
  for (const connId of deleted) await agent.gone(connId);
  await eventually('the rotations', async () => {
    const rows = (await agent.records()).filter(({ conn_id }) => rotated.includes(conn_id));
    const isAnother = rows.map((row) => row.ntf_action === 'C' && row.ntf_sub_id !== before.get(row.conn_id));
    return String(isAnother) === 'true,true,true';
  });
  expect(connIds.map((connId) => callsOf('SDEL', before.get(connId)).length)).toEqual([1, 1, 2, 1, 1, 2]);
  // One at a time.
  const batches = new Set(callsOf('SDEL').map(({ batch }) => batch));
  const sizes = ntf().batches.flatMap(({ batch, size }) => (batches.has(batch) ? [size] : []));
  expect(new Set(sizes)).toEqual(new Set([1]));
  for (const connId of deleted) expect((await agent.queueOf(connId)).ntf_id).toBeNull();
});

test('N14 credentials are kept sealed, on the queue that is used, and no key is in a history or a log', async () => {
  const connId = await createOne();
  const queue = await agent.queueOf(connId);
  const keys = [
    KEY_BOX.open(queue.ntf_private_key!, `rcv_queues.ntf_private_key:default/${queue.ntf_id}`),
    KEY_BOX.open(queue.rcv_private_key, `rcv_queues.rcv_private_key:default/${queue.rcv_id}`),
  ];
  const texts: string[] = [JSON.stringify(agent.slot.logs)];
  for await (const { workflowId, runId } of agent.slot.client.workflow.list()) {
    texts.push(await keptByTemporal(agent.slot.client.workflow.getHandle(workflowId, runId)));
  }
  expect(texts.some((text) => text.includes(connId))).toBe(true);
  for (const key of keys) {
    for (const form of ['base64', 'base64url', 'hex'] as const) {
      expect(texts.filter((text) => text.includes(key.toString(form)))).toEqual([]);
    }
  }
});

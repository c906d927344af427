/** Single connections on their way to a subscription, through its checks, and away again. */
import type { RouterFailure } from '../../dev/stand-ins/subscription/router-desk.ts';
import { KEY_BOX, agentOfTests } from './agent.ts';
import { eventually } from '../harness.ts';

const DAY = 24 * 3_600_000;

const agent = agentOfTests({ smp: 2 });
beforeAll(async () => {
  await agent.start();
  await agent.activateToken();
});
afterEach(() => {
  for (const router of [...agent.routers.smp, ...agent.routers.ntf]) router.heal();
});

const smp = (index = 0) => agent.routers.smp[index]!;
const ntf = () => agent.routers.ntf[0]!;
const callsOf = (op: string, entity?: string) =>
  [...smp(0).calls, ...smp(1).calls, ...ntf().calls].filter(
    (call) => call.op === op && (entity === undefined || call.entity === entity),
  );

async function createOne(userId = 1): Promise<string> {
  const [connId] = await agent.create([{ userId, server: smp().address }]);
  await agent.active([connId!]);
  // The command that follows finds it well; what a test does next must not meet it.
  await agent.idle();
  return connId!;
}

/** The queue that a connection uses, as its router has it. */
async function queueOf(connId: string, router = smp()) {
  const [row] = await agent.rows<{ rcv_id: string; ntf_id: string | null }>(
    'SELECT rcv_id, ntf_id FROM subscriptions.rcv_queues WHERE conn_id = $1',
    [connId],
  );
  return { row: row!, stored: router.queues().find(({ recipientId }) => recipientId === row!.rcv_id) };
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
  const { row: queue, stored } = await queueOf(connId);
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
  expect(stored?.notifier?.notifierId).toBe(queue.ntf_id);
  expect(callsOf('NKEY')).toHaveLength(before + 1);
  const [subscription] = ntf()
    .subscriptions()
    .filter(({ subscriptionId }) => subscriptionId === row.ntf_sub_id);
  expect(subscription).toMatchObject({ notifierId: queue.ntf_id });
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
    expect((await queueOf(connId)).stored?.notifier?.notifierId).toBe(after.smp_ntf_id);
  }
  expect(await agent.events()).toEqual([]);
});

test('N10 switching off clears the credentials here, then there, then the record; switching on makes all of it again', async () => {
  const connId = await createOne();
  const before = (await agent.record(connId))!;
  const { row: queue } = await queueOf(connId);
  smp().fail({ failure: { kind: 'reset' }, subject: `NDEL ${queue.rcv_id}` });
  const off = await agent.toggle([connId], false);
  expect(off).toEqual({ changed: 1, unknown: [] });
  await eventually('an NDEL that failed', async () => callsOf('NDEL', queue.rcv_id).length > 1);
  // The router cannot be reached; here it is right already.
  expect((await queueOf(connId)).row.ntf_id).toBeNull();
  expect(await agent.record(connId)).toMatchObject({ smp_action: 'D', smp_ntf_id: before.smp_ntf_id });
  smp().heal();
  await eventually('the record to go', async () => (await agent.record(connId)) === undefined);
  expect((await queueOf(connId)).stored?.notifier).toBeUndefined();
  await eventually('the notification router to hear of it', async () =>
    ntf()
      .subscriptions()
      .some(({ subscriptionId, status }) => subscriptionId === before.ntf_sub_id && status === 'DELETED'),
  );

  const again = await agent.toggle([connId], false);
  expect(again).toEqual({ changed: 0, unknown: [] });
  await agent.toggle([connId], true);
  await agent.active([connId]);
  expect((await agent.record(connId))!.smp_ntf_id).not.toBe(before.smp_ntf_id);
});

test('N8 N16 work is counted for each user, attempts and successes apart', async () => {
  const count = async (userId: number, counter: string): Promise<number> => {
    const rows = await agent.rows<{ value: number }>(
      `SELECT coalesce(sum(value), 0)::float8 AS value FROM subscriptions.servers_stats
        WHERE user_id = $1 AND counter = $2`,
      [userId, counter],
    );
    return rows[0]!.value;
  };
  const connections = [41, 41, 42].map((userId) => ({ userId, server: smp().address }));
  ntf().fail({ failure: { kind: 'reset' }, subject: 'SNEW', times: 1 });
  const connIds = await agent.create(connections);
  await agent.active(connIds);
  expect([await count(41, 'ntfCreated'), await count(42, 'ntfCreated')]).toEqual([2, 1]);
  const attempts = [await count(41, 'ntfCreateAttempts'), await count(42, 'ntfCreateAttempts')];
  expect(attempts[0]! + attempts[1]!).toBeGreaterThan(3);

  for (const connId of connIds) await makeDue(connId);
  await eventually(
    'their checks',
    async () => (await count(42, 'ntfChecked')) === 1 && (await count(41, 'ntfChecked')) === 2,
  );
  expect([await count(41, 'ntfCheckAttempts'), await count(42, 'ntfCheckAttempts')]).toEqual([2, 1]);

  await agent.toggle(connIds, false);
  await eventually('their end', async () => (await count(41, 'ntfKeyDeleted')) === 2);
  expect(await count(42, 'ntfKeyDeleteAttempts')).toBe(1);
  await agent.toggle(connIds, true);
  await agent.active(connIds);
  const keys = [4, 2];
  expect([await count(41, 'ntfKey'), await count(42, 'ntfKey')]).toEqual(keys);
  expect([await count(41, 'ntfKeyAttempts'), await count(42, 'ntfKeyAttempts')]).toEqual(keys);
});

test('N7 N17 scenario 34: old records: deletes and rotations go on after OK and AUTH, and wait otherwise', async () => {
  const connIds = await Promise.all(Array.from({ length: 6 }, () => createOne()));
  const before = new Map(
    await Promise.all(connIds.map(async (id) => [id, (await agent.record(id))!] as const)),
  );
  const subscriptionOf = (connId: string) => before.get(connId)!.ntf_sub_id!;
  const answers = ['OK', 'AUTH', 'TIMEOUT', 'OK', 'AUTH', 'TIMEOUT'];
  connIds.forEach((connId, index) => {
    const subject = `SDEL ${subscriptionOf(connId)}`;
    if (answers[index] === 'AUTH') ntf().fail({ failure: { kind: 'error', code: 'AUTH' }, subject });
    if (answers[index] === 'TIMEOUT') ntf().fail({ failure: { kind: 'silence' }, subject, times: 1 });
  });
  // Switched off, or the next sweep would bring the deleted ones back.
  await agent.rows('UPDATE subscriptions.connections SET enable_ntfs = false WHERE conn_id = ANY($1)', [
    connIds.slice(0, 3),
  ]);
  await agent.rows(
    `UPDATE subscriptions.ntf_subscriptions
        SET ntf_action = CASE WHEN conn_id = ANY($1) THEN 'D' ELSE 'R' END, action_ts = clock_timestamp()
      WHERE conn_id = ANY($2)`,
    [connIds.slice(0, 3), connIds],
  );
  await agent.worker('ntf-ntf', ntf().address).signal('work');
  await eventually('the deletions', async () => {
    const left = (await agent.records()).filter(({ conn_id }) => connIds.slice(0, 3).includes(conn_id));
    return left.length === 0;
  });
  await eventually('the rotations', async () => {
    const rows = (await agent.records()).filter(({ conn_id }) => connIds.slice(3).includes(conn_id));
    return (
      rows.length === 3 &&
      rows.every((row) => row.ntf_action === 'C' && row.ntf_sub_id !== subscriptionOf(row.conn_id))
    );
  });
  const calls = connIds.map((connId) => callsOf('SDEL', subscriptionOf(connId)).length);
  expect(calls).toEqual([1, 1, 2, 1, 1, 2]);
  // One at a time.
  expect(
    ntf()
      .batches.filter(({ batch }) => callsOf('SDEL').some((call) => call.batch === batch))
      .every(({ size }) => size === 1),
  ).toBe(true);
  for (const connId of connIds.slice(0, 3)) expect((await queueOf(connId)).row.ntf_id).toBeNull();
});

test('N14 credentials are kept sealed, on the queue that is used, and no key is in a history or a log', async () => {
  const connId = await createOne();
  const [queue] = await agent.rows<{
    rcv_id: string;
    ntf_id: string;
    ntf_private_key: Buffer;
    rcv_private_key: Buffer;
  }>('SELECT * FROM subscriptions.rcv_queues WHERE conn_id = $1', [connId]);
  const keys = [
    KEY_BOX.open(queue!.ntf_private_key, `rcv_queues.ntf_private_key:default/${queue!.ntf_id}`),
    KEY_BOX.open(queue!.rcv_private_key, `rcv_queues.rcv_private_key:default/${queue!.rcv_id}`),
  ];
  const texts: string[] = [JSON.stringify(agent.slot.logs)];
  for await (const { workflowId, runId } of agent.slot.client.workflow.list()) {
    const { events } = await agent.slot.client.workflow.getHandle(workflowId, runId).fetchHistory();
    const encoded = [...JSON.stringify(events).matchAll(/"data":"([^"]+)"/g)].map(([, data]) => data!);
    texts.push(...encoded.map((data) => Buffer.from(data, 'base64').toString('utf8')));
  }
  expect(texts.some((text) => text.includes(connId))).toBe(true);
  for (const key of keys) {
    for (const form of ['base64', 'base64url', 'hex'] as const) {
      expect(texts.filter((text) => text.includes(key.toString(form)))).toEqual([]);
    }
  }
});

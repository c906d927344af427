/** Items that fail for now and for good, on routers; and what is counted. When a worker does what: worker.workflow.test.ts. */
import { eventually } from '../harness.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { agentOfTests, isCreated } from './agent.ts';

const agent = agentOfTests({ smp: 3 });
const collector = collectorOfTests();
beforeAll(() =>
  agent.startActive({ OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`, OTEL_METRIC_EXPORT_INTERVAL: '250' }),
);
afterEach(async () => {
  agent.routers.heal();
  await agent.rows('DELETE FROM subscriptions.events');
});

const smp = (index = 0) => agent.routers.smp[index]!;
const ntf = () => agent.routers.ntf[0]!;

/** Sizes of the batches so far, of one operation. */
function batchSizes(router: { calls: readonly { op: string; batch: number }[] }, op: string): number[] {
  const sizes = new Map<number, number>();
  for (const call of router.calls) {
    if (call.op === op) sizes.set(call.batch, (sizes.get(call.batch) ?? 0) + 1);
  }
  return [...sizes.values()];
}

/** How many commands come together at a router: with the binary protocol, as many as a block takes. */
const BLOCKS_OF_150 = [77, 73];
const BLOCKS_OF_TWO = [1, 1];

const pointsOf = (name: string) => collector.counts(`notification.subscriptions.${name}`);

// First, as long as nothing else was counted.
test('N16 work by kind and result, and events; what is due, given up and to be deleted', async () => {
  const server = smp().address;
  smp().fail({ failure: { kind: 'error', code: 'QUOTA' }, subject: 'NKEY', times: 1 });
  smp().fail({ failure: { kind: 'omit' }, subject: 'NKEY', times: 1 });
  const [givenUp] = await agent.create([{ userId: 1, server }]);
  await eventually('the refusal', async () => (await agent.events()).length === 1);
  expect(await agent.record(givenUp!)).toMatchObject({ smp_action: null });
  smp().heal();
  await agent.createActive(2);

  const noneOf = { 'pool=ntf-smp': 0, 'pool=ntf-ntf': 0, 'pool=ntf-tkn-del': 0 };
  // An export lacks what PostgreSQL has not said by then.
  await eventually('all of it to be exported', async () => {
    expect(pointsOf('without_action')).toEqual({ '': 1 });
    expect(pointsOf('events')).toEqual({ 'kind=ERRS': 1 });
    expect(pointsOf('due')).toEqual(noneOf);
    expect(pointsOf('silent_routers')).toEqual(noneOf);
    return true;
  });
  expect(pointsOf('work')).toEqual({
    'kind=smp-key result=given_up': 1,
    'kind=smp-key result=done': 2,
    'kind=ntf-create result=done': 2,
  });
  expect(pointsOf('worker_deaths')).toEqual({});
});

test('N2 N6 N17 scenario 26: of five creations two succeed, one is given up, and exactly two are tried again', async () => {
  // Keys first, so that the notifiers are known when the creations come.
  ntf().fail({ failure: { kind: 'reset' }, subject: 'SNEW' });
  const server = smp().address;
  const connIds = await agent.create(Array.from({ length: 5 }, () => ({ userId: 1, server })));
  const keyed = await eventually('the keys', async () => {
    const rows = (await agent.records()).filter(({ conn_id }) => connIds.includes(conn_id));
    return rows.length === 5 && rows.every(({ status }) => status === 'KEY') && rows;
  });
  const [refused, ...slow] = [keyed[1]!, keyed[2]!, keyed[4]!];
  ntf().heal();
  ntf().fail({ failure: { kind: 'error', code: 'AUTH' }, subject: `SNEW ${refused.smp_ntf_id}` });
  for (const row of slow) {
    ntf().fail({ failure: { kind: 'silence' }, subject: `SNEW ${row.smp_ntf_id}`, times: 1 });
  }
  await eventually('the refusal', async () => (await agent.events()).length > 0);

  const rows = new Map((await agent.records()).map((row) => [row.conn_id, row]));
  for (const { conn_id } of [keyed[0]!, keyed[3]!]) expect(isCreated(rows.get(conn_id))).toBe(true);
  expect(rows.get(refused.conn_id)).toMatchObject({
    status: 'KEY',
    ntf_action: null,
    smp_action: null,
    action_ms: null,
  });
  expect(await agent.events()).toEqual([
    { kind: 'ERRS', errors: [{ connId: refused.conn_id, error: 'NTF AUTH' }], offers_restart: false },
  ]);
  const created = new Set(connIds.filter((connId) => connId !== refused.conn_id));
  await agent.active([...created]);
  const notifiers = slow.map(({ smp_ntf_id }) => smp_ntf_id!).sort();
  const last = ntf().calls.slice(-2);
  expect(last.map(({ op }) => op)).toEqual(['SNEW', 'SNEW']);
  expect(last.flatMap(({ subjects }) => subjects.filter((one) => notifiers.includes(one))).sort()).toEqual(
    notifiers,
  );
  // One SNEW fills a block of the binary protocol.
  expect(batchSizes(ntf(), 'SNEW').slice(-BLOCKS_OF_TWO.length)).toEqual(BLOCKS_OF_TWO);

  // Only a new command brings the one that was given up back: from the key on.
  ntf().heal();
  await agent.command([refused.conn_id]);
  await agent.active([refused.conn_id]);
  expect((await agent.record(refused.conn_id))!.smp_ntf_id).not.toBe(refused.smp_ntf_id);
});

test('N1 N17 scenario 31: 151 on one server are two batches, one on another is one; a worker for each, concurrently', async () => {
  const [busy, quiet] = [smp(1), smp(2)];
  // With the gate closed they wait for a command for all of them.
  await agent.setToken('REGISTERED');
  const connIds = await agent.create([
    ...Array.from({ length: 151 }, () => ({ userId: 1, server: busy.address })),
    { userId: 1, server: quiet.address },
  ]);
  expect(await agent.record(connIds[0]!)).toBeUndefined();
  await agent.setToken('ACTIVE');
  const before = [batchSizes(busy, 'NKEY').length, batchSizes(quiet, 'NKEY').length];
  busy.fail({ failure: { kind: 'silence' }, subject: 'NKEY' });
  await agent.command();
  await agent.active([connIds.at(-1)!]);
  // The other worker has come to its end while this one is waiting for its first batch.
  const state = await eventually('the first batch to be under way', async () => {
    const { doing, remaining } = await agent.workerState('ntf-smp', busy.address);
    const sent = batchSizes(busy, 'NKEY').length - before[0]!;
    return doing === 'working' && sent >= BLOCKS_OF_150.length && { doing, remaining };
  });
  expect(state).toEqual({ doing: 'working', remaining: 150 });
  const unanswered = batchSizes(busy, 'NKEY').slice(before[0]);
  busy.heal();
  await agent.active(connIds);
  expect(new Set(unanswered)).toEqual(new Set(BLOCKS_OF_150));
  expect(batchSizes(busy, 'NKEY').slice(before[0]! + unanswered.length)).toEqual([...BLOCKS_OF_150, 1]);
  expect(batchSizes(quiet, 'NKEY').slice(before[1])).toEqual([1]);
  expect(Math.max(...batchSizes(ntf(), 'SNEW'))).toBeLessThanOrEqual(150);
});

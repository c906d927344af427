/**
 * What one worker of a pool does when: its lists and their delays, its runs, its deaths, and signals that come while it ends.
 * And what a supervisor does when: its commands one at a time, those for all page by page, and what it waits for without any.
 */
import { ApplicationFailure } from '@temporalio/common';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import { SUBSCRIPTION_CLOSED, SUBSCRIPTION_INTERRUPTED } from '../../workflows/failures.ts';
import type {
  BatchOrder,
  BatchResult,
  ClaimResult,
  PoolWorkerInput,
  PoolWorkerState,
} from '../../workflows/subscription/contract.ts';
import {
  CLOSE_UPDATE,
  MAX_CONNECTIONS,
  OPEN_UPDATE,
  RECONCILE_SIGNAL,
  SUBSCRIPTION_STATE_QUERY,
  WORK_SIGNAL,
} from '../../workflows/subscription/contract.ts';
import type { ListKind } from '../../workflows/subscription/rules.ts';
import { RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { hold, silence, startWorkflow } from '../workflow-tier.ts';

const KEY: PoolWorkerInput = { agentId: 'a', pool: 'ntf-ntf', server: { host: 'ntf.example', port: 443 } };
const PACE = { firstMs: 50, constantForMs: 250, maxMs: 1_000 };
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

type Batch = (order: BatchOrder) => Promise<BatchResult>;

/** The rows of one server: what is due, and what has been asked of the router. */
class FakeRows {
  /** Epoch ms when each item is due. */
  readonly due = new Map<string, { kind: ListKind; atMs: number }>();
  /** Items that fail for now. */
  readonly failing: Set<string>;
  readonly batches: { kind: ListKind; ids: string[]; claim: number; atMs: number }[] = [];
  claims = 0;
  isClosed = false;

  /** @param ids to be created now. */
  constructor(ids: string[] = [], failing: string[] = []) {
    this.put(ids);
    this.failing = new Set(failing);
  }

  put(ids: readonly string[], kind: ListKind = 'ntf-create', atMs = 0): void {
    for (const id of ids) this.due.set(id, { kind, atMs });
  }

  readonly claim = ({ nowMs }: { nowMs: number }): ClaimResult => {
    if (this.isClosed) return { isClosed: true };
    const items = [...this.due].flatMap(([id, { kind, atMs }]) => (atMs <= nowMs ? [{ id, kind }] : []));
    const later = [...this.due.values()].map(({ atMs }) => atMs);
    return {
      ...{ isClosed: false, epoch: 1, claim: (this.claims += 1), items, pace: PACE },
      ...(items.length === 0 && later.length > 0 ? { nextDueMs: Math.min(...later) } : {}),
    };
  };

  readonly work = ({ kind, ids, claim, nowMs }: BatchOrder): BatchResult => {
    this.batches.push({ kind, ids, claim, atMs: nowMs });
    const retryIds = ids.filter((id) => this.failing.has(id));
    for (const id of ids) if (!this.failing.has(id)) this.due.delete(id);
    return { retryIds };
  };
}

function beginWorker(rows: FakeRows, instead: Fakes<SubscriptionActivities> = {}) {
  const work = rows.work as unknown as Batch;
  const activities = {
    claim: rows.claim,
    ...{ runKeys: work, runDeletes: work, runCreates: work, runChecks: work, runTokenDeletion: work },
    kickDue: () => 0,
    reportError: () => undefined,
    ...instead,
  } as Fakes<SubscriptionActivities>;
  return startWorkflow('subscriptionWorker', [KEY], { activities });
}

type Worker = Awaited<ReturnType<typeof beginWorker>>;
const stateOf = (worker: Worker) => worker.query<PoolWorkerState>(SUBSCRIPTION_STATE_QUERY);
const reports = (worker: Worker) => worker.calls('reportError').map(({ args: [report] }) => report);

test('N2 delays grow as they should, and what failed is tried again alone', async () => {
  const rows = new FakeRows(['one', 'two'], ['two']);
  const worker = await beginWorker(rows);
  await worker.until('the twelfth attempt', () => rows.batches.length === 12);
  const gaps = rows.batches.slice(1).map(({ atMs }, index) => atMs - rows.batches[index]!.atMs);
  // 50 ms while less than 250 ms were slept, then half as long again each time; whole ms, rounded up.
  expect(gaps).toEqual([50, 50, 50, 50, 50, 75, 113, 169, 254, 380, 570]);
  expect(rows.batches.map(({ ids }) => ids)).toEqual([
    ['one', 'two'],
    ...Array.from({ length: 11 }, () => ['two']),
  ]);
  rows.failing.clear();
  await worker.result();
  expect(reports(worker)).toEqual([]);
});

test('N1 a list in retry holds up the later lists of its server, in their order', async () => {
  const rows = new FakeRows(['create'], ['create']);
  rows.put(['check'], 'ntf-check');
  rows.put(['key'], 'smp-key');
  const worker = await beginWorker(rows);
  await worker.until('three attempts', () => rows.batches.length === 4);
  expect(rows.batches.map(({ kind }) => kind)).toEqual(['smp-key', 'ntf-create', 'ntf-create', 'ntf-create']);
  expect(await stateOf(worker)).toMatchObject({
    doing: 'retrying',
    kind: 'ntf-create',
    attempt: 3,
    remaining: 1,
  });
  rows.failing.clear();
  await worker.result();
  expect(rows.batches.at(-1)!.kind).toBe('ntf-check');
  // One claim for all of them, and one that finds nothing more.
  expect(rows.claims).toBe(2);
});

test('N2 a list in retry goes on in the next run of its workflow when the history has grown', async () => {
  const rows = new FakeRows(['one', 'two'], ['two']);
  const worker = await beginWorker(rows);
  const { args } = await worker.continuation();
  const { carried } = args[0] as PoolWorkerInput;
  expect(carried?.round).toEqual({ claim: 1, lists: [{ kind: 'ntf-create', ids: ['two'] }] });
  expect(carried?.retry?.attempts).toBe(rows.batches.length);
  expect(worker.historyLength).toBeLessThan(430);
  const before = rows.batches.length;
  await worker.until('the next attempt', () => rows.batches.length > before);
  expect(await stateOf(worker)).toMatchObject({ kind: 'ntf-create', attempt: before + 1 });
  rows.failing.clear();
  await worker.result();
  expect(rows.claims).toBe(2);
});

test('N2 a worker that dies goes on four times in a clock minute, and ends after the fifth', async () => {
  const rows = new FakeRows(['one']);
  const worker = await beginWorker(rows, {
    runCreates: () => {
      throw ApplicationFailure.nonRetryable('the key does not open');
    },
  });
  await worker.result();
  expect(reports(worker).map(({ kind }) => kind)).toEqual([
    ...Array<string>(4).fill('ERR INTERNAL'),
    'ERR CRITICAL',
  ]);
  expect(reports(worker)[0]!.error).toBe('ntf-ntf ntf.example:443: the key does not open');
  // Each time it asks the rows again.
  expect(rows.claims).toBe(5);
  expect(rows.due.has('one')).toBe(true);
});

test('subscription-L3 N2 a worker that is woken while its fifth death is reported starts over', async () => {
  const rows = new FakeRows();
  const fifth = hold<void>();
  let isReported = false;
  const worker = await beginWorker(rows, {
    claim: (order) => {
      if (isReported) return rows.claim(order);
      throw ApplicationFailure.nonRetryable('nothing that an item could be blamed for');
    },
    reportError: ({ kind }) => (kind === 'ERR CRITICAL' ? fifth : undefined),
  });
  await worker.until('the fifth report', () => reports(worker).length === 5);
  worker.signal(WORK_SIGNAL);
  await worker.advance();
  isReported = true;
  fifth.release();
  await worker.result();
  expect(worker.continuations).toHaveLength(1);
  expect(worker.continuations[0]!.args).toEqual([KEY]);
  expect(rows.claims).toBe(1);
});

test('N14 a batch whose process is gone is no death: rows are asked again, and other workers are woken', async () => {
  const rows = new FakeRows();
  rows.put(['lost', 'interrupted'], 'smp-key');
  let calls = 0;
  const worker = await beginWorker(rows, {
    runKeys: (order) => {
      calls += 1;
      if (calls === 1) return silence();
      if (calls === 2) throw ApplicationFailure.nonRetryable('the process stops', SUBSCRIPTION_INTERRUPTED);
      return rows.work(order);
    },
  });
  await worker.result();
  expect(calls).toBe(3);
  expect(worker.calls('kickDue')).toHaveLength(2);
  expect(reports(worker)).toEqual([]);
  expect(rows.batches.map(({ claim }) => claim)).toEqual([3]);
});

test('N1 a signal that comes after the look for rows is not lost', async () => {
  const rows = new FakeRows();
  const claim = hold<ClaimResult>();
  let looks = 0;
  const worker = await beginWorker(rows, {
    claim: (order) => ((looks += 1) === 1 ? claim : rows.claim(order)),
  });
  await worker.advance();
  rows.put(['late']);
  worker.signal(WORK_SIGNAL);
  await worker.advance();
  claim.release({ isClosed: false, epoch: 1, claim: 1, items: [], pace: PACE });
  await worker.result();
  expect(rows.batches.map(({ ids }) => ids)).toEqual([['late']]);
});

test('N3 N5 N17 scenario 28: checks that are due later are waited for without a look, and a signal ends the wait', async () => {
  const rows = new FakeRows();
  const worker = await beginWorker(rows);
  const dueMs = worker.nowMs + 10 * MINUTE;
  rows.put(['check'], 'ntf-check', dueMs);
  await worker.until('the wait', async () => (await stateOf(worker)).doing === 'waiting');
  expect(await stateOf(worker)).toMatchObject({ nextDueMs: dueMs });
  await worker.advance(MINUTE);
  expect(rows.claims).toBe(1);
  rows.put(['create']);
  worker.signal(WORK_SIGNAL);
  await worker.advance();
  expect(rows.batches.map(({ ids }) => ids)).toEqual([['create']]);
  await worker.result();
  expect(rows.batches.at(-1)).toMatchObject({ ids: ['check'], atMs: dueMs });
});

test('N3 N4 thirty days of checks: each when it is due, and runs stay short', async () => {
  const rows = new FakeRows();
  const worker = await beginWorker(rows, {
    runChecks: (order) => {
      for (const id of order.ids) {
        const { atMs } = rows.due.get(id)!;
        expect(order.nowMs).toBeGreaterThanOrEqual(atMs);
        expect(order.nowMs).toBeLessThan(atMs + 1_000);
      }
      const outcome = rows.work(order);
      rows.put(order.ids, 'ntf-check', order.nowMs + 3 * DAY);
      return outcome;
    },
  });
  const begunMs = worker.nowMs;
  for (let hour = 0; hour < 24; hour += 4) {
    rows.put([`check-${hour}`], 'ntf-check', begunMs + DAY + hour * 60 * MINUTE);
  }
  let longest = 0;
  await worker.until('thirty days', () => {
    longest = Math.max(longest, worker.historyLength);
    return worker.nowMs > begunMs + 30 * DAY;
  });
  expect(rows.batches).toHaveLength(6 * 10);
  expect(worker.continuations.length).toBeGreaterThan(0);
  expect(longest).toBeLessThan(430);
});

test('subscription-L3 N3 a worker that is woken while it is being ended by a close starts over', async () => {
  const rows = new FakeRows();
  const worker = await beginWorker(rows);
  rows.put(['check'], 'ntf-check', worker.nowMs + 10 * MINUTE);
  await worker.until('the wait', async () => (await stateOf(worker)).doing === 'waiting');
  worker.cancel();
  worker.signal(WORK_SIGNAL);
  expect((await worker.continuation()).args).toEqual([KEY]);
});

test('N13 a worker of an agent that was closed ends, and one that is woken meanwhile starts over', async () => {
  const rows = new FakeRows(['one']);
  const batch = hold<BatchResult>();
  const worker = await beginWorker(rows, { runCreates: () => batch });
  await worker.until('the batch', () => worker.calls('runCreates').length === 1);
  rows.isClosed = true;
  worker.signal(WORK_SIGNAL);
  await worker.advance();
  batch.fail(ApplicationFailure.nonRetryable('the agent was closed', SUBSCRIPTION_CLOSED));
  await worker.result();
  expect(worker.continuations).toHaveLength(1);
  expect(reports(worker)).toEqual([]);
});

function beginSupervisor(instead: Fakes<SubscriptionActivities> = {}) {
  const activities: Fakes<SubscriptionActivities> = {
    loadAgentState: () => ({ epoch: 0, isOpen: true }),
    setOpen: (_agentId, isOpen) => ({ epoch: 1, isOpen }),
    kickDue: () => 0,
    reconcileConnections: () => undefined,
    reportError: () => undefined,
    ...instead,
  };
  return startWorkflow('subscriptionSupervisor', ['a'], { activities });
}

const carriedOut = (supervisor: Awaited<ReturnType<typeof beginSupervisor>>) =>
  supervisor.calls('reconcileConnections').map(({ args: [, command] }) => command);

test('N1 commands wait while the agent is closed, and are carried out one at a time, in the order in which they came', async () => {
  const supervisor = await beginSupervisor();
  await supervisor.update(CLOSE_UPDATE);
  const many = Array.from({ length: MAX_CONNECTIONS }, (_, index) => `c${index}`);
  supervisor.signal(RECONCILE_SIGNAL, many);
  supervisor.signal(RECONCILE_SIGNAL, ['last']);
  await supervisor.advance();
  expect(carriedOut(supervisor)).toEqual([]);
  expect(await supervisor.details()).toBe('closed; 2 commands wait, 0 were carried out');
  await supervisor.update(OPEN_UPDATE);
  await supervisor.advance();
  expect(carriedOut(supervisor)).toEqual([{ connIds: many }, { connIds: ['last'] }]);
  // At its start, and when it was opened.
  expect(supervisor.calls('kickDue')).toHaveLength(2);
});

test('N1 a command for all is carried out page by page, in another run if need be; one that fails is reported, and the next one is taken', async () => {
  const pages = ['c500', 'c900'];
  const supervisor = await beginSupervisor({
    reconcileConnections(_agentId, { connIds }) {
      if (connIds) throw ApplicationFailure.nonRetryable('broken');
      supervisor.signal(RENEW_SIGNAL);
      return pages.shift();
    },
  });
  supervisor.signal(RECONCILE_SIGNAL, ['one']);
  await supervisor.advance();
  supervisor.signal(RECONCILE_SIGNAL);
  await supervisor.advance();
  const carried = { queue: [], current: { after: 'c900' }, done: 1 };
  expect(supervisor.continuations[0]!.args).toEqual(['a', carried]);
  expect(carriedOut(supervisor)).toEqual([{ connIds: ['one'] }, {}, { after: 'c500' }, { after: 'c900' }]);
  const [report, ...others] = supervisor.calls('reportError').map(({ args }) => args[0]);
  expect([report, others]).toEqual([{ agentId: 'a', kind: 'ERR INTERNAL', error: 'reconcile: broken' }, []]);
});

test('I49 a supervisor without a command waits for a timer: one without it is taken for stuck', async () => {
  const supervisor = await beginSupervisor();
  const begunMs = supervisor.nowMs;
  await supervisor.until('a day', () => supervisor.nowMs >= begunMs + DAY);
  expect(await supervisor.details()).toBe('open; 0 commands wait, 0 were carried out');
});

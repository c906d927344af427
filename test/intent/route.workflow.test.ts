/**
 * When a route's workflow makes its attempts: the ladder, what spends no budget, pauses, orders to replay, cancellation. And
 * what a notification and a dead letter ask for.
 */
import {
  ApplicationFailure,
  CancelledFailure,
  WorkflowExecutionAlreadyStartedError,
  defineSearchAttributeKey,
} from '@temporalio/common';
import type { IntentActivities } from '../../activities/intent/acceptance.ts';
import type { RouteActivities } from '../../activities/intent/routes.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import { ROUTE_DEAD_LETTERED, ROUTE_DEFERRED } from '../../workflows/failures.ts';
import type {
  Acceptance,
  Death,
  NotificationInput,
  Publication,
  PublishResult,
  SettledStatus,
} from '../../workflows/intent/contract.ts';
import {
  CHANNEL_RESUMED_SIGNAL,
  LOOK_SIGNAL,
  REPLAY_SIGNAL,
  SETTLED_SIGNAL,
} from '../../workflows/intent/contract.ts';
import { ladderDelayMs } from '../../workflows/policies.ts';
import type { Fakes } from '../workflow-tier.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';

const KEY = { notificationId: '1790000000000-0', routeRef: 'push:user:user-1' };
const CLASSIFICATION = 'gateway_stream_publish_failed';
const [MIN_MS, MAX_MS] = [1_000, 4_000];
const HOUR = 3_600_000;
const STATUS = defineSearchAttributeKey('RouteStatus', 'KEYWORD');

/** A route as its row and its channel are. */
class FakeRoute {
  status: 'open' | SettledStatus = 'open';
  attempts = 0;
  generation = 0;
  maxAttempts = 5;
  isBroken = false;
  isPaused = false;
  /** How many attempts cannot be made. */
  deferrals = 0;
  /** When attempts were made, and on which order. */
  readonly tries: { atMs: number; replay?: Publication['replay'] }[] = [];
  private readonly orders = new Set<string>();

  publish({ replay }: Publication, atMs: number): PublishResult {
    this.tries.push({ atMs, ...(replay === undefined ? {} : { replay }) });
    const isNewOrder = replay !== undefined && !this.orders.has(replay.replayId);
    if (isNewOrder) this.orders.add(replay.replayId);
    if (this.status === 'dead_letter' && isNewOrder) {
      this.generation += 1;
      this.attempts = 0;
      this.status = 'open';
    }
    if (this.status === 'dead_letter') return { status: this.status, classification: CLASSIFICATION };
    if (this.status !== 'open') return { status: this.status };
    if (this.isPaused) return { status: 'paused' };
    if (this.deferrals > 0) {
      this.deferrals -= 1;
      return { status: 'deferred', reason: 'leased' };
    }
    this.attempts += 1;
    if (!this.isBroken) {
      this.status = 'published';
      return { status: this.status };
    }
    if (this.attempts >= this.maxAttempts) {
      this.status = 'dead_letter';
      return { status: this.status, classification: CLASSIFICATION };
    }
    const retryInMs = ladderDelayMs(this.attempts, MIN_MS, MAX_MS);
    const { attempts: attemptCount, maxAttempts } = this;
    throw ApplicationFailure.create({
      type: CLASSIFICATION,
      details: [{ attemptCount, maxAttempts, retryInMs, nextAttemptAtMs: atMs + retryInMs }],
      nextRetryDelay: retryInMs,
    });
  }
}

type Activities = Fakes<RouteActivities & SteeringActivities>;

/** A route whose row and channel are so, and its workflow. */
async function beginRoute(state: Partial<FakeRoute> = {}, instead: Activities = {}) {
  const route = Object.assign(new FakeRoute(), state);
  const activities: Activities = {
    publishRoute: (publication) => route.publish(publication, run.nowMs),
    publishRouteWhenPossible: (publication) => {
      const result = route.publish(publication, run.nowMs);
      if (result.status === 'deferred') throw ApplicationFailure.create({ type: ROUTE_DEFERRED });
      return result;
    },
    skipRoute: () => {
      if (route.status === 'open') route.status = 'skipped';
      return route.status;
    },
    ...instead,
  };
  const run = await startWorkflow('notificationRoute', [KEY], { activities });
  return { route, run };
}

/** A route that waits after its first attempt has failed. */
async function beginFailedRoute() {
  const { route, run } = await beginRoute({ isBroken: true });
  await run.until('the first failure', () => route.attempts === 1);
  await run.advance(1);
  return { route, run };
}

const gapsOf = ({ tries }: FakeRoute) => tries.slice(1).map(({ atMs }, index) => atMs - tries[index]!.atMs);
const ordersOf = ({ tries }: FakeRoute) => tries.map(({ replay }) => replay?.requestedBy);

test('I21 I22 the gaps between the attempts are the ladder, up to its end, and the workflow of a dead letter fails', async () => {
  const { route, run } = await beginRoute({ isBroken: true });
  await expect(run.result()).rejects.toMatchObject({ type: ROUTE_DEAD_LETTERED, details: [CLASSIFICATION] });
  // The last one asks once more: a reset may begin after it.
  expect(gapsOf(route)).toEqual([1_000, 2_000, 4_000, 4_000, 0]);
  expect(route.attempts).toBe(5);
  expect(run.searchAttributes.get(STATUS)).toBe('dead_letter');
});

test('I20 a route that is published by a later attempt says so, and what it waits for until then', async () => {
  const { route, run } = await beginFailedRoute();
  expect(run.searchAttributes.get(STATUS)).toBe('failed');
  const next = new Date(route.tries[0]!.atMs + MIN_MS).toISOString();
  expect(await run.details()).toBe(`\`${CLASSIFICATION}\`: attempt 2 of 5 at ${next}.`);
  route.isBroken = false;
  expect(await run.result()).toEqual({ status: 'published' });
  expect(run.searchAttributes.get(STATUS)).toBe('published');
});

test('I23 attempts that cannot be made spend no budget', async () => {
  const { route, run } = await beginRoute({ deferrals: 20 });
  expect(await run.result()).toEqual({ status: 'published' });
  expect([route.attempts, route.tries.length]).toEqual([1, 21]);
});

test('I23 an attempt whose process died spends no budget, and is made again', async () => {
  let calls = 0;
  const { route, run } = await beginRoute(
    { deferrals: 1 },
    {
      publishRouteWhenPossible: (publication) => {
        calls += 1;
        if (calls === 1) throw ApplicationFailure.create({ type: 'TypeError', message: 'a defect' });
        return route.publish(publication, run.nowMs);
      },
    },
  );
  expect(await run.result()).toEqual({ status: 'published' });
  expect([route.attempts, calls]).toEqual([1, 2]);
});

test('I26 a route of a paused channel waits until it resumes, without an attempt, also when it is signalled to replay', async () => {
  const { route, run } = await beginRoute({ isPaused: true });
  await run.advance(24 * HOUR);
  run.signal(REPLAY_SIGNAL);
  await run.advance(HOUR);
  expect(route.attempts).toBe(0);
  expect(run.searchAttributes.get(STATUS)).toBe('paused');
  expect(await run.details()).toContain('Paused');
  const before = route.tries.length;
  route.isPaused = false;
  const resumedMs = run.nowMs;
  run.signal(CHANNEL_RESUMED_SIGNAL);
  expect(await run.result()).toEqual({ status: 'published' });
  expect(run.nowMs).toBe(resumedMs);
  expect(route.tries).toHaveLength(before + 1);
});

test('I25 the signal makes a waiting route try now, before its timer and between its attempts', async () => {
  const { route, run } = await beginFailedRoute();
  const began = run.nowMs;
  run.signal(REPLAY_SIGNAL);
  await run.advance();
  expect(route.attempts).toBe(2);
  await run.until('the fourth failure', () => route.attempts === 4);
  await run.advance(1);
  route.isBroken = false;
  run.signal(REPLAY_SIGNAL);
  const beforeMs = run.nowMs;
  expect(await run.result()).toEqual({ status: 'published' });
  expect(run.nowMs).toBe(beforeMs);
  expect(beforeMs).toBeGreaterThan(began);
  // A route that is not dead gets no fresh budget.
  expect(route.generation).toBe(0);
});

test('I26 a route that was settled elsewhere is looked at now', async () => {
  const { route, run } = await beginFailedRoute();
  const beforeMs = run.nowMs;
  route.status = 'skipped';
  run.signal(SETTLED_SIGNAL);
  expect(await run.result()).toEqual({ status: 'skipped' });
  expect(run.nowMs).toBe(beforeMs);
});

test('I25 an order that comes while the last attempt is under way is carried out after it', async () => {
  const last = hold<PublishResult>();
  const { route, run } = await beginRoute(
    { isBroken: true, maxAttempts: 2 },
    {
      publishRouteWhenPossible: () => {
        route.status = 'dead_letter';
        route.attempts = 2;
        return last;
      },
    },
  );
  await run.until('the last attempt', () => route.attempts === 2);
  run.signal(REPLAY_SIGNAL, { requestedBy: 'nina' });
  await run.advance();
  expect(last.isCancelRequested).toBe(true);
  route.isBroken = false;
  last.release({ status: 'dead_letter', classification: CLASSIFICATION });
  expect(await run.result()).toEqual({ status: 'published' });
  expect(route.generation).toBe(1);
  expect(ordersOf(route).at(-1)).toBe('nina');
});

test.each<[string, unknown[], object]>([
  ['no argument', [], { requestedBy: 'signal' }],
  ['a senseless one', [[17]], { requestedBy: 'signal' }],
  ['texts that cannot be stored', [{ requestedBy: 'a\0b', reason: '\ud800' }], { requestedBy: 'signal' }],
  ['a person and a reason', [{ requestedBy: 'nina', reason: 'up' }], { requestedBy: 'nina', reason: 'up' }],
])('I25 a run that a signal with %s starts is one order', async (_what, args, order) => {
  const { route, run } = await beginRoute({ status: 'dead_letter' });
  run.signal(REPLAY_SIGNAL, ...args);
  expect(await run.result()).toEqual({ status: 'published' });
  expect(route.tries.map(({ replay }) => replay)).toEqual([
    { ...order, replayId: expect.stringMatching(/signal-1$/) },
  ]);
});

test('I25 a run that is started without a signal is an order, and dies again with its own budget', async () => {
  const { route, run } = await beginRoute({ status: 'dead_letter', isBroken: true });
  await expect(run.result()).rejects.toMatchObject({ type: ROUTE_DEAD_LETTERED });
  expect([route.generation, route.attempts]).toEqual([1, 5]);
  expect(new Set(ordersOf(route))).toEqual(new Set(['start']));
});

test.each([
  ['is skipped', 'open', 'skipped'],
  ['counts as published if it was published before', 'published', 'published'],
] as const)('I26 a route that is cancelled while it waits %s', async (_what, status, expected) => {
  const { route, run } = await beginFailedRoute();
  route.status = status;
  run.cancel();
  expect(await run.result()).toEqual({ status: expected });
});

test('I26 a cancellation does not wait for an attempt that hangs', async () => {
  const attempt = hold<PublishResult>();
  const { run } = await beginRoute({ deferrals: 1 }, { publishRouteWhenPossible: () => attempt });
  await run.until('the attempt', () => run.calls('publishRouteWhenPossible').length === 1);
  run.cancel();
  expect(await run.result()).toEqual({ status: 'skipped' });
});

const INTENT: NotificationInput = { notificationId: '1-0', notificationType: 'game.turn.ready' };

test('I26 a notification that is cancelled while it is being accepted skips its routes', async () => {
  const acceptance = hold<Acceptance>();
  const run = await startWorkflow('notification', [INTENT], {
    activities: {
      acceptIntent: () => acceptance,
      skipOpenRoutes: () => undefined,
    } satisfies Fakes<IntentActivities & SteeringActivities>,
  });
  await run.advance();
  run.cancel();
  await run.advance();
  // Acceptance may have written routes by then.
  expect(run.calls('skipOpenRoutes')).toEqual([]);
  acceptance.fail(new CancelledFailure('stopped'));
  await expect(run.result()).rejects.toThrow(CancelledFailure);
  expect(run.calls('skipOpenRoutes').map(({ args }) => args)).toEqual([[INTENT.notificationId]]);
});

const failed = (error: Error) => () => {
  throw error;
};

test.each([
  ['is skipped', () => ({ status: 'skipped' as const }), { skipped: 1 }],
  ['dies', failed(ApplicationFailure.nonRetryable('budget spent', ROUTE_DEAD_LETTERED)), { deadLettered: 1 }],
  [
    'has a workflow already, and is skipped there',
    failed(new WorkflowExecutionAlreadyStartedError('again', 'id', 'notificationRoute')),
    { skipped: 1 },
  ],
])('I20 a notification counts its route that %s', async (_what, notificationRoute, expected) => {
  const run = await startWorkflow('notification', [INTENT], {
    activities: {
      acceptIntent: () => ({ outcome: 'accepted', routeCount: 1, skipped: 0, routes: [KEY.routeRef] }),
      awaitAllSettled: () => ({ published: 0, skipped: 1, deadLettered: 0 }),
    } satisfies Fakes<IntentActivities & SteeringActivities>,
    children: { notificationRoute },
  });
  expect(await run.result()).toEqual({
    ...{ outcome: 'accepted', published: 0, skipped: 0, deadLettered: 0 },
    ...expected,
  });
});

test.each<[string, Partial<NotificationInput>, { routes?: string[] }]>([
  ['with many routes', {}, {}],
  ['whose routes get a workflow once they fail', { dispatch: 'on_failure' }, { routes: [] }],
])(
  'I41 a notification %s has them published in slices, and counts them by their rows',
  async (_what, input, accepted) => {
    const totals = { published: 320, skipped: 90, deadLettered: 0 };
    const run = await startWorkflow('notification', [{ ...INTENT, ...input }], {
      activities: {
        acceptIntent: () => ({ outcome: 'accepted', routeCount: 410, skipped: 90, ...accepted }),
        publishSlice: ({ offset }) =>
          offset === 200 ? { published: 190, skipped: 0, open: 10 } : { published: 60, skipped: 45, open: 0 },
        awaitAllSettled: () => totals,
      } satisfies Fakes<IntentActivities & RouteActivities & SteeringActivities>,
    });
    expect(await run.result()).toEqual({ outcome: 'accepted', ...totals });
    const { notificationId } = INTENT;
    expect(run.calls('publishSlice').map(({ args }) => args)).toEqual(
      [0, 200, 400].map((offset) => [{ notificationId, offset, limit: 200, replay: false }]),
    );
  },
);

const DEATH: Death = { classification: CLASSIFICATION };

const startDeadLetter = (looks: (Death | undefined)[]) =>
  startWorkflow('notificationDeadLetter', [KEY], {
    activities: { lookAtDeadLetter: () => looks.shift() } satisfies Fakes<RouteActivities>,
  });

test('newcomer-2 a dead letter looks when it is told, and ends once its route is not dead', async () => {
  const run = await startDeadLetter([DEATH, DEATH, undefined]);
  const began = run.nowMs;
  for (let times = 0; times < 2; times += 1) {
    await run.advance(HOUR);
    run.signal(LOOK_SIGNAL);
  }
  await run.result();
  expect(run.nowMs - began).toBe(2 * HOUR);
  expect(run.calls('lookAtDeadLetter')).toHaveLength(3);
});

test('newcomer-2 a dead letter looks once a day in a new run without being told', async () => {
  const run = await startDeadLetter([DEATH, DEATH, undefined]);
  const began = run.nowMs;
  await run.result();
  expect(run.nowMs - began).toBe(48 * HOUR);
  const again = { workflowType: 'notificationDeadLetter', args: [KEY] };
  expect(run.continuations).toEqual([again, again]);
});

test('newcomer-2 a dead letter that an operator cancels is off the list', async () => {
  const run = await startDeadLetter([DEATH]);
  await run.advance(HOUR);
  run.cancel();
  await expect(run.result()).rejects.toThrow('is cancelled');
});

test('newcomer-2 a dead letter with a long history looks in a new run', async () => {
  const run = await startDeadLetter([DEATH]);
  const began = run.nowMs;
  await run.advance(HOUR);
  run.historyLength = 1_000;
  run.signal(LOOK_SIGNAL);
  await run.continuation();
  expect(run.nowMs - began).toBe(HOUR);
});

test('I20 a route whose first attempt another workflow has made goes on from its result', async () => {
  const details = { attemptCount: 1, maxAttempts: 5, nextAttemptAtMs: 0, retryInMs: MIN_MS };
  const first = { status: 'failed', classification: CLASSIFICATION, details } as const;
  const run = await startWorkflow('notificationRoute', [{ ...KEY, first }], {
    activities: { publishRouteWhenPossible: () => ({ status: 'published' }) } satisfies Activities,
  });
  const began = run.nowMs;
  expect(await run.result()).toEqual({ status: 'published' });
  expect(run.nowMs - began).toBe(MIN_MS);
  expect(run.calls('publishRouteWhenPossible')).toHaveLength(1);
});

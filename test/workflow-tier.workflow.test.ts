/** What the tier plays of Temporal, on workflows of the bundle. */
import {
  ApplicationFailure,
  CancelledFailure,
  WorkflowExecutionAlreadyStartedError,
} from '@temporalio/common';
import type { IntentActivities } from '../activities/intent/acceptance.ts';
import type { RouteActivities } from '../activities/intent/routes.ts';
import type { SteeringActivities } from '../activities/intent/steering.ts';
import type { SymbolConfigActivities } from '../activities/symbol-config/activities.ts';
import type {
  Acceptance,
  NotificationInput,
  PublicationFailureDetails,
  PublishResult,
} from '../workflows/intent/contract.ts';
import { routeStatus } from '../workflows/search-attributes.ts';
import type { PushOutcome } from '../workflows/symbol-config/contract.ts';
import type { Fakes } from './workflow-tier.ts';
import { REAL, hold, silence, startWorkflow } from './workflow-tier.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

const ROUTE = { notificationId: '1-0', routeRef: 'push:user:user-1' };
const INTENT: NotificationInput = {
  notificationId: '1-0',
  notificationType: 'game.turn.ready',
};
const ACCEPTED: Acceptance = {
  outcome: 'accepted',
  routeCount: 1,
  skipped: 0,
  routes: [{ routeRef: ROUTE.routeRef }],
};

const DETAILS: PublicationFailureDetails = {
  attemptCount: 1,
  maxAttempts: 8,
  nextAttemptAtMs: 0,
  retryInMs: SECOND,
  backoffMinMs: SECOND,
  backoffMaxMs: 5 * MINUTE,
};
const notPublished = (attemptCount: number, nextRetryDelay?: number) =>
  ApplicationFailure.create({
    type: 'gateway_stream_publish_failed',
    details: [{ ...DETAILS, attemptCount }],
    ...(nextRetryDelay === undefined ? {} : { nextRetryDelay }),
  });

type Stored = Awaited<ReturnType<SymbolConfigActivities['loadSymbolConfig']>>;

const symbolFakes = {
  loadSymbolConfig: () => ({
    version: 0,
    crawler: { enabled: false, intervalMs: MINUTE },
  }),
  takeSymbolSnapshot: () => ({ version: 1, isListEmpty: false }),
  pushSymbols: (): PushOutcome => ({
    pushed: 1,
    failedTargets: [],
    reconciliationMs: 60 * MINUTE,
  }),
} satisfies Fakes<SymbolConfigActivities>;

test('an activity is tried again as its policy says, up to its last attempt', async () => {
  const triedAt: number[] = [];
  const run = await startWorkflow('notificationRoute', [ROUTE], {
    activities: {
      publishRoute: () => {
        triedAt.push((run.nowMs - began) / SECOND);
        if (triedAt.length === 9) return { status: 'published' };
        throw notPublished(triedAt.length);
      },
    } satisfies Fakes<RouteActivities>,
  });
  const began = run.nowMs;
  expect(await run.result()).toEqual({ status: 'published' });
  // A local activity without a second attempt, then after a timer an activity with seven attempts, then one with one.
  expect(triedAt).toEqual([0, 1, 3, 7, 15, 31, 63, 127, 128]);
  expect(run.calls('publishRoute').map(({ attempt }) => attempt)).toEqual([1, 1, 2, 3, 4, 5, 6, 7, 1]);
  expect(run.searchAttributes.getAll()).toEqual(expect.arrayContaining(routeStatus('published')));
});

test('a failure says when the next attempt is, and types that are not retried end it', async () => {
  const answers = [
    notPublished(1),
    notPublished(2, 40 * SECOND),
    ApplicationFailure.nonRetryable('broken', 'X'),
  ];
  const run = await startWorkflow('notificationRoute', [ROUTE], {
    activities: {
      publishRoute: () => {
        throw answers.shift()!;
      },
    } satisfies Fakes<RouteActivities>,
  });
  const began = run.nowMs;
  await expect(run.result()).rejects.toMatchObject({ cause: { type: 'X' } });
  expect(run.nowMs - began).toBe(41 * SECOND);
});

test('without heartbeats, or without an answer, an attempt ends by its time-out', async () => {
  const answers = [silence<PushOutcome>(), hold<PushOutcome>(), symbolFakes.pushSymbols()];
  const run = await startWorkflow('symbolConfig', ['main'], {
    activities: {
      ...symbolFakes,
      pushSymbols: () => answers.shift()!,
    } satisfies Fakes<SymbolConfigActivities>,
  });
  const began = run.nowMs;
  await run.until('the third attempt', () => run.calls('pushSymbols').length === 3);
  const pushedAt = run.calls('pushSymbols').map(({ atMs }) => (atMs - began) / SECOND);
  expect(pushedAt).toEqual([0, 10 + 1, 10 + 1 + 600 + 2]);
});

test('a held answer may come after a cancellation', async () => {
  const acceptance = hold<Acceptance>();
  const skipped: unknown[] = [];
  const run = await startWorkflow('notification', [INTENT], {
    activities: {
      acceptIntent: () => acceptance,
      skipOpenRoutes: (notificationId: string) => void skipped.push(notificationId),
    } satisfies Fakes<IntentActivities & SteeringActivities>,
  });
  await run.advance();
  run.cancel();
  await run.advance();
  expect(acceptance.isCancelRequested).toBe(true);
  expect(run.describe()).toContain('acceptIntent, attempt 1, which is held');
  acceptance.fail(new CancelledFailure('stopped'));
  await expect(run.result()).rejects.toThrow(CancelledFailure);
  expect(skipped).toEqual(['1-0']);
});

test('a cancellation ends an activity that is held, or that waits for its next attempt', async () => {
  const round = hold<PushOutcome>();
  const symbols = await startWorkflow('symbolConfig', ['main'], {
    activities: { ...symbolFakes, pushSymbols: () => round } satisfies Fakes<SymbolConfigActivities>,
  });
  await symbols.advance();
  symbols.cancel();
  await expect(symbols.result()).rejects.toThrow(CancelledFailure);
  expect(round.isCancelRequested).toBe(true);

  const route = await startWorkflow('notificationRoute', [ROUTE], {
    activities: {
      publishRoute: () => {
        throw notPublished(1);
      },
      skipRoute: () => 'skipped',
    } satisfies Fakes<RouteActivities & SteeringActivities>,
  });
  await route.advance(2 * SECOND);
  route.cancel();
  const cancelledMs = route.nowMs;
  expect(await route.result()).toEqual({ status: 'skipped' });
  expect(route.nowMs).toBe(cancelledMs);
  expect(route.calls('publishRoute')).toHaveLength(2);
});

test('I54 a recovery reconciles intents until nothing is left, and rewinds and reconciles the other kinds', async () => {
  const found = [{ published: 2 }, { intents: 1, failed: 1 }, { failed: 1 }];
  const run = await startWorkflow(
    'recovery',
    [
      {
        ...{ stream: 'intents', outbound: [], sinceMs: 1, requestedBy: 'test' },
        also: ['mobile-push', 'symbol-config', 'account-callback', 'subscription'],
      },
    ],
    {
      activities: {
        readAgainSince: () => undefined,
        rewind: () => '7-0',
        reconcile: () => found.shift() ?? { restarted: 5 },
      },
    },
  );
  expect(await run.result()).toEqual({
    step: 'done',
    restored: [],
    takenUp: { overdue: 0, published: 2, restarted: 0, intents: 1, ended: 0, failed: 2 },
    mobilePush: { restarted: 5 },
    symbolsPushed: true,
    inputsAgainFrom: '7-0',
    subscription: { restarted: 5 },
  });
  expect(run.calls('rewind')).toHaveLength(4);
});

describe('a child', () => {
  const activities = {
    acceptIntent: () => ACCEPTED,
    publishRoute: () => ({ status: 'published' as const }),
    awaitSettled: () => 'skipped' as const,
  } satisfies Fakes<IntentActivities & RouteActivities & SteeringActivities>;
  const outcome = { outcome: 'accepted', published: 0, skipped: 0, deadLettered: 0 };

  test('runs as a workflow of the bundle', async () => {
    const run = await startWorkflow('notification', [INTENT], {
      activities,
      children: { notificationRoute: REAL },
    });
    expect(await run.result()).toEqual({ ...outcome, published: 1 });
    expect(run.children).toMatchObject([{ workflowType: 'notificationRoute', args: [ROUTE] }]);
    expect(run.calls('publishRoute')).toHaveLength(1);
  });

  test.each([
    ['is answered for', () => ({ status: 'skipped' as const }), { skipped: 1 }],
    [
      'fails',
      () => {
        throw ApplicationFailure.nonRetryable('budget spent', 'RouteDeadLettered');
      },
      { deadLettered: 1 },
    ],
    [
      'runs already',
      () => {
        throw new WorkflowExecutionAlreadyStartedError('again', 'id', 'notificationRoute');
      },
      { skipped: 1 },
    ],
  ])('%s', async (_what, notificationRoute, expected) => {
    const run = await startWorkflow('notification', [INTENT], {
      activities,
      children: { notificationRoute },
    });
    expect(await run.result()).toEqual({ ...outcome, ...expected });
  });

  test('is abandoned with its parent, and goes on', async () => {
    const publication = hold<PublishResult>();
    const run = await startWorkflow('notification', [INTENT], {
      activities: {
        ...activities,
        publishRoute: () => publication,
        skipOpenRoutes: () => undefined,
      } satisfies Fakes<IntentActivities & RouteActivities & SteeringActivities>,
      children: { notificationRoute: REAL },
    });
    await run.until('the attempt', () => run.calls('publishRoute').length);
    run.cancel();
    await expect(run.result()).rejects.toThrow(CancelledFailure);
    const route = run.find(run.children[0]!.workflowId)!;
    publication.release({ status: 'published' });
    expect(await route.result()).toEqual({ status: 'published' });
  });
});

test('an update is refused by its validator, or answered', async () => {
  const run = await startWorkflow('symbolConfig', ['main'], { activities: symbolFakes });
  await expect(run.update('symbolsChanged', { numberOnFrom: 0 })).rejects.toThrow('numberOnFrom must be');
  expect(await run.update('symbolsChanged')).toEqual({ change: 2 });
});

test('a workflow that continues as new is stopped there, or goes on with its arguments', async () => {
  const run = await startWorkflow('symbolConfig', ['main'], { activities: symbolFakes });
  await run.advance();
  expect(await run.details()).toMatch(/^Version 1\.\n\nNext push .+ \(reconciliation\)\.$/);
  run.signal('renew');
  const { args } = await run.continuation();
  expect(args).toMatchObject(['main', { version: 1, toldChanges: 1 }]);
  expect(run.historyLength).toBeGreaterThan(10);
  await run.advance();
  expect(run.calls('loadSymbolConfig')).toHaveLength(1);
  expect(await run.query('status')).toEqual(args[1]);
  expect(run.historyLength).toBeLessThan(10);
});

test('what cannot go on says why', async () => {
  const unfaked = await startWorkflow('symbolConfig', ['main'], { activities: {} });
  await expect(unfaked.advance()).rejects.toThrow(
    'the activity loadSymbolConfig, which the test does not fake',
  );
  const stuck = await startWorkflow('symbolConfig', ['main'], {
    activities: { loadSymbolConfig: silence<Stored> } satisfies Fakes<SymbolConfigActivities>,
  });
  await stuck.advance();
  expect(stuck.describe()).toContain('waits for loadSymbolConfig, attempt 1, which is held');
  const paused = await startWorkflow('notificationRoute', [ROUTE], {
    activities: { publishRoute: () => ({ status: 'paused' as const }) } satisfies Fakes<RouteActivities>,
  });
  await expect(paused.result()).rejects.toThrow(
    'waited in vain for the end of notificationRoute-1: nothing is due any more\n' +
      'notificationRoute-1 waits for 1 conditions',
  );
  const broken = await startWorkflow('notification', [null as never], { activities: {} });
  await expect(broken.advance()).rejects.toThrow('a workflow task of notification-1 fails: Cannot read');
});

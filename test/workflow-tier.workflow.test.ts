/** Children, updates and new runs, as the workflow tier plays them, and what a run that cannot go on says. */
import {
  ApplicationFailure,
  CancelledFailure,
  WorkflowExecutionAlreadyStartedError,
} from '@temporalio/common';
import type { IntentActivities } from '../activities/intent/acceptance.ts';
import type { RouteActivities } from '../activities/intent/routes.ts';
import type { SteeringActivities } from '../activities/intent/steering.ts';
import type { SymbolConfigActivities } from '../activities/symbol-config/activities.ts';
import type { Acceptance, NotificationInput, PublishResult } from '../workflows/intent/contract.ts';
import type { PushResult } from '../workflows/symbol-config/contract.ts';
import type { Fakes } from './workflow-tier.ts';
import { REAL, hold, startWorkflow } from './workflow-tier.ts';

const MINUTE = 60_000;

const ROUTE = { notificationId: '1-0', routeRef: 'push:user:user-1' };
const INTENT: NotificationInput = { notificationId: '1-0', notificationType: 'game.turn.ready' };
const ACCEPTED: Acceptance = {
  ...{ outcome: 'accepted', routeCount: 1, skipped: 0 },
  routes: [{ routeRef: ROUTE.routeRef }],
};

const symbolFakes = {
  loadSymbolConfig: () => ({ version: 0, crawler: { enabled: false, intervalMs: MINUTE } }),
  takeSymbolSnapshot: () => ({ version: 1, isListEmpty: false }),
  pushSymbols: (): PushResult => ({ pushed: 1, failedTargets: [], reconciliationMs: 60 * MINUTE }),
} satisfies Fakes<SymbolConfigActivities>;

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
    awaitSettled: () => 'skipped' as const,
  } satisfies Fakes<IntentActivities & SteeringActivities>;
  const outcome = { outcome: 'accepted', published: 0, skipped: 0, deadLettered: 0 };

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

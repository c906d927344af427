/** A notification's workflow, without a server: what it asks for, and when. */
import { CancelledFailure } from '@temporalio/common';
import type { IntentActivities } from '../../activities/intent/acceptance.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import type { Acceptance, NotificationInput } from '../../workflows/intent/contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';

const INTENT: NotificationInput = {
  notificationId: '1-0',
  notificationType: 'game.turn.ready',
};

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

/** The workflow of a dead letter: open for as long as its route is dead, and never for longer than a day in one run. */
import type { RouteActivities } from '../../activities/intent/routes.ts';
import type { Death } from '../../workflows/intent/contract.ts';
import { LOOK_SIGNAL } from '../../workflows/intent/contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { startWorkflow } from '../workflow-tier.ts';

const ROUTE = { notificationId: '1790000000000-0', routeRef: 'push:user:user-1' };
const DEATH: Death = { classification: 'gateway_stream_publish_failed' };
const HOUR = 3_600_000;

const start = (looks: (Death | undefined)[]) =>
  startWorkflow('notificationDeadLetter', [ROUTE], {
    activities: { lookAtDeadLetter: () => looks.shift() } satisfies Fakes<RouteActivities>,
  });

test('newcomer-2 a dead letter looks when it is told, and ends once its route is not dead', async () => {
  const run = await start([DEATH, DEATH, undefined]);
  const began = run.nowMs;
  await run.advance(HOUR);
  run.signal(LOOK_SIGNAL);
  await run.advance(HOUR);
  run.signal(LOOK_SIGNAL);
  await run.result();
  expect(run.nowMs - began).toBe(2 * HOUR);
  expect(run.calls('lookAtDeadLetter')).toHaveLength(3);
});

test('newcomer-2 a dead letter looks once a day in a new run without being told', async () => {
  const run = await start([DEATH, DEATH, undefined]);
  const began = run.nowMs;
  await run.result();
  expect(run.nowMs - began).toBe(48 * HOUR);
  expect(run.continuations).toEqual([
    { workflowType: 'notificationDeadLetter', args: [ROUTE] },
    { workflowType: 'notificationDeadLetter', args: [ROUTE] },
  ]);
});

test('newcomer-2 a dead letter that an operator cancels is off the list', async () => {
  const run = await start([DEATH]);
  await run.advance(HOUR);
  run.cancel();
  await expect(run.result()).rejects.toThrow('is cancelled');
});

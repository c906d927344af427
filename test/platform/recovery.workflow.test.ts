/** What a recovery asks for, kind by kind. */
import { startWorkflow } from '../workflow-tier.ts';

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
    also: Object.fromEntries(
      ['mobile-push', 'symbol-config', 'account-callback', 'subscription'].map((kind) => [
        kind,
        { takenUp: { restarted: 5 }, againFrom: '7-0' },
      ]),
    ),
  });
  expect(run.calls('rewind')).toHaveLength(4);
});

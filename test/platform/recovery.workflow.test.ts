/** What a recovery asks for, kind by kind, and when workflows of schedules and readers go on in a new run. */
import { CancelledFailure } from '@temporalio/common';
import { RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';

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
  expect(await run.details()).toBe('Asked for by test: done');
});

test('I29 a retention that has not deleted everything goes on in a new run', async () => {
  const pages = [
    { deleted: { records: 500 }, isUnfinished: true },
    { deleted: { records: 3 }, isUnfinished: false },
  ];
  const run = await startWorkflow('retention', [], { activities: { deleteExpired: () => pages.shift() } });
  expect(await run.result()).toEqual({ records: 3 });
  expect(run.continuations).toHaveLength(1);
});

test('I51 a reader that is to be renewed stops reading and goes on in a new run', async () => {
  const reading = hold();
  const run = await startWorkflow('streamBridge', ['notification:intents'], {
    activities: { bridgeStream: () => reading },
  });
  await run.until('the reader', () => run.calls('bridgeStream').length === 1);
  expect(await run.details()).toBe('Reads `notification:intents`; the pending activity shows how far.');
  run.signal(RENEW_SIGNAL);
  await run.advance();
  expect(reading.isCancelRequested).toBe(true);
  reading.fail(new CancelledFailure('it was asked to stop'));
  expect((await run.continuation()).args).toEqual(['notification:intents']);
});

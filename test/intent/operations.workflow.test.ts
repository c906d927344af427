/** When the workflow of an operation has pages dealt with, and what ends the page that is under way. */
import { CancelledFailure } from '@temporalio/common';
import type { OperationActivities, OperationStep } from '../../activities/operations.ts';
import { ABORT_OPERATION_UPDATE, PAUSE_UPDATE, RESUME_UPDATE } from '../../workflows/operation-contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';

const step = (done: number, more: Partial<OperationStep> = {}): OperationStep => ({
  ...{ counts: { total: 3, done, ordered: done }, isLeft: done < 3, ...more },
});

/** @param pages the answers of the pages, one after the other. */
const begin = (...pages: ReturnType<NonNullable<Fakes<OperationActivities>['doPage']>>[]) =>
  startWorkflow('operation', [{ operationId: 'replay-1', kind: 'replay', rate: 1 }], {
    activities: {
      doPage: () => pages.shift()!,
      notePause: () => undefined,
      endOperation: () => undefined,
    } satisfies Fakes<OperationActivities>,
  });

test.each([
  ['aborted', ABORT_OPERATION_UPDATE],
  ['paused', PAUSE_UPDATE],
])(
  'U2 a page that waits for PostgreSQL is given up once its operation is %s, and no other begins',
  async (status, update) => {
    const page = hold<OperationStep>();
    const run = await begin(page);
    await run.until('the page', () => run.calls('doPage').length === 1);
    await run.update(update, { requestedBy: 'bert' });
    await run.advance(1_000);
    expect(page.isCancelRequested).toBe(true);
    page.fail(new CancelledFailure('given up'));
    await run.advance(3_600_000);
    expect(run.calls('doPage')).toHaveLength(1);
    expect(await run.query('state')).toMatchObject({ status, changedBy: 'bert' });
  },
);

test('U2 an operation whose row was paused before its workflow heard of it waits until it is resumed', async () => {
  const run = await begin(step(1, { pausedBy: 'nina' }), step(3));
  await run.advance(3_600_000);
  expect(await run.query('state')).toMatchObject({ status: 'paused', changedBy: 'nina', done: 1 });
  await run.update(RESUME_UPDATE, { requestedBy: 'max' });
  expect(await run.result()).toMatchObject({ status: 'done', changedBy: 'max', done: 3 });
  expect(run.calls('notePause').map(({ args }) => args)).toEqual([['replay-1', null]]);
});

test('U2 the row of an operation says who paused it; an order by a name that cannot be stored is refused', async () => {
  const page = hold<OperationStep>();
  const run = await begin(page);
  await run.until('the page', () => run.calls('doPage').length === 1);
  await expect(run.update(PAUSE_UPDATE, { requestedBy: '\0' })).rejects.toThrow('requestedBy must be a text');
  await run.update(PAUSE_UPDATE, { requestedBy: 'bert' });
  page.release(step(1));
  await run.advance(1_000);
  expect(run.calls('notePause').map(({ args }) => args)).toEqual([['replay-1', 'bert']]);
});

test('U2 an operation that finds nothing is done', async () => {
  const run = await begin({ counts: { total: 0, done: 0, ordered: 0 }, isLeft: false });
  expect(await run.result()).toMatchObject({ status: 'done' });
  expect(run.calls('endOperation').map(({ args }) => args)).toEqual([['replay-1', 'done']]);
});

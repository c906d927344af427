/** Which runs without a workflow task nothing will wake, by what Temporal says of them. */
import type { WorkflowClient, WorkflowExecutionDescription } from '@temporalio/client';
import { isStuck } from '../../api/stuck-workflow.ts';

interface PageRequest {
  maximumPageSize?: number;
  nextPageToken?: Uint8Array | null;
}

const timer = (what: 'Started' | 'Fired' | 'Canceled', timerId = '1') => ({
  [`timer${what}EventAttributes`]: { timerId },
});
const BEGUN = [{ workflowExecutionStartedEventAttributes: {} }];
const DONE = { workflowTaskCompletedEventAttributes: {} };
const ONE_TASK = [...BEGUN, DONE];
/** More than a server gives together. */
const LONG = Array.from({ length: 600 }, () => DONE);
const WAITING = [...ONE_TASK, timer('Started')];
const DESCRIBED_BEFORE = { workflowExecutionInfo: { historyLength: WAITING.length } };

test.each([
  ['has done a task and waits for nothing', ONE_TASK, {}, true],
  ['had a timer that fired', [...WAITING, timer('Fired')], {}, true],
  ['had a timer that it called off', [...WAITING, timer('Canceled')], {}, true],
  ['waits for a timer', WAITING, {}, false],
  ['waits for one of two timers', [...WAITING, timer('Fired', '2')], {}, false],
  ['has not begun yet', BEGUN, {}, false],
  ['waits for an activity', ONE_TASK, { pendingActivities: [{}] }, false],
  ['waits for a child', ONE_TASK, { pendingChildren: [{}] }, false],
  ['has a task', ONE_TASK, { pendingWorkflowTask: { attempt: 1 } }, false],
  ['had a timer that fired since it was described', [...WAITING, timer('Fired')], DESCRIBED_BEFORE, false],
  ['has a long history', [...ONE_TASK, ...LONG], {}, true],
  ['has waited for a timer for long', [...WAITING, ...LONG], {}, false],
  ['had a timer long ago', [...WAITING, ...LONG, timer('Fired')], {}, true],
])('I49 a run that is never idle and %s: stuck?', async (_, events, raw, expected) => {
  const newestFirst = events.map((event: object, at) => ({ ...event, eventId: at + 1 })).reverse();
  const page = ({ maximumPageSize: size = 0, nextPageToken }: PageRequest) => {
    const from = nextPageToken?.[0] ?? 0;
    const next = from + 1 < newestFirst.length / size ? Uint8Array.of(from + 1) : undefined;
    return Promise.resolve({
      history: { events: newestFirst.slice(from * size, (from + 1) * size) },
      nextPageToken: next,
    });
  };
  const workflows = {
    options: { namespace: 'default' },
    workflowService: { getWorkflowExecutionHistoryReverse: page },
  } as unknown as WorkflowClient;
  const whole = { workflowExecutionInfo: { historyLength: events.length }, ...raw };
  const run = { raw: whole, status: { name: 'RUNNING' } } as unknown as WorkflowExecutionDescription;
  expect(await isStuck(workflows, run, true)).toBe(expected);
  expect(await isStuck(workflows, run)).toBe(false);
});

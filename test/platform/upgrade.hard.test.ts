/**
 * The release in production, stopped in the middle of all kinds of work, and this checkout in its place: what was begun
 * is finished, once.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { WorkflowExecutionInfo } from '@temporalio/client';
import proto from '@temporalio/proto';
import { openCallbackWork } from '../account-callback/open-work.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { openIntentWork } from '../intent/open-work.ts';
import { openMobileWork } from '../mobile-push/open-work.ts';
import type { OpenWork } from '../open-work.ts';
import { createFleet } from '../service-process.ts';
import { openSubscriptionWork } from '../subscription/open-work.ts';
import { openSymbolWork } from '../symbol-config/open-work.ts';
import type { UnpackedRelease } from './release.ts';
import { unpackRelease } from './release.ts';

const { WorkflowTaskFailedCause } = proto.temporal.api.enums.v1;

/** What runs for good, and what is in the middle of something, when the release is stopped. */
const OPEN_TYPES = [
  'accountCallback',
  'channel',
  'mobilePush',
  'notification',
  'notificationRoute',
  'streamBridge',
  'subscriptionSupervisor',
  'subscriptionWorker',
  'symbolConfig',
];
const OLD_SCHEDULES = ['intent-retention', 'mobile-retention', 'subscription-sweep'];
const SCHEDULES = ['intent-reconciliation', ...OLD_SCHEDULES, 'mobile-reconciliation'].sort();

let release: UnpackedRelease;
let dir: string;
let slot: Slot;
let fleet: ReturnType<typeof createFleet>;
let works: OpenWork[] = [];

beforeAll(() => {
  release = unpackRelease();
  dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-upgrade-'));
}, 300_000);
afterAll(() => {
  release?.remove();
  rmSync(dir, { recursive: true, force: true });
});
beforeEach(async () => {
  slot = await takeSlot({ isEmpty: true });
  fleet = createFleet(slot);
  // The slot is everybody's, and released last.
  const lent: Slot = { ...slot, release: async () => undefined };
  works = [
    openIntentWork(lent),
    await openMobileWork(lent, dir),
    await openSymbolWork(lent, dir),
    await openCallbackWork(lent),
    await openSubscriptionWork(lent),
  ];
});
afterEach(async () => {
  await fleet.killAll();
  for (const work of works) await work.release();
  await slot.release();
});

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'the release in production is stopped with %s in mid-work, and this one finishes all of it, once',
  async (signal) => {
    const env = {
      ...Object.assign({}, ...works.map((work) => work.env)),
      NOTIFICATION_ROLES: works.map(({ role }) => role).join(),
    } as Record<string, string>;
    const old = await fleet.start(env, release.folder);
    await Promise.all(works.map((work) => work.begin()));
    const open = await openExecutions();
    expect(await schedules()).toEqual(OLD_SCHEDULES);

    const exitCode = await old.end(signal);
    expect(exitCode).toBe(signal === 'SIGTERM' ? 0 : null);
    for (const work of works) await work.stopped?.();

    const beganMs = Date.now();
    const successor = await fleet.start(env);
    await Promise.all(works.map((work) => work.heal()));
    await Promise.all(works.map((work) => work.finish()));

    expect(await schedules()).toEqual(SCHEDULES);
    await Promise.all(SCHEDULES.map((id) => runsSince(id, beganMs)));
    await Promise.all(open.map(isFinishedOrRuns));
    await allReplay();
    expect(await successor.end('SIGTERM')).toBe(0);
  },
  300_000,
);

/** Executions that run, once there are some of each type. Visibility is behind. */
function openExecutions(): Promise<WorkflowExecutionInfo[]> {
  return eventually('something of each type to run', async () => {
    const open = await executions("ExecutionStatus = 'Running'");
    const types = new Set(open.map(({ type }) => type));
    const missing = OPEN_TYPES.filter((type) => !types.has(type));
    if (missing.length > 0) throw new Error(`there is no ${missing.join(', ')}`);
    return open;
  });
}

async function executions(query?: string): Promise<WorkflowExecutionInfo[]> {
  const found: WorkflowExecutionInfo[] = [];
  for await (const execution of slot.client.workflow.list(query === undefined ? {} : { query })) {
    found.push(execution);
  }
  return found;
}

async function schedules(): Promise<string[]> {
  const ids: string[] = [];
  for await (const { scheduleId } of slot.client.schedule.list()) ids.push(scheduleId);
  return ids.sort();
}

/** Waits for a run of a schedule to succeed. */
async function runsSince(scheduleId: string, sinceMs: number): Promise<void> {
  const schedule = slot.client.schedule.getHandle(scheduleId);
  await schedule.trigger();
  await eventually(`a run of ${scheduleId}`, async () => {
    const { info } = await schedule.describe();
    const run = info.recentActions.findLast(({ takenAt }) => takenAt.getTime() >= sinceMs);
    if (!run) return false;
    const { workflowId, firstExecutionRunId } = run.action.workflow;
    const { status } = await slot.client.workflow.getHandle(workflowId, firstExecutionRunId).describe();
    return status.name === 'COMPLETED';
  });
}

/** Nothing that was open has failed or was ended by force; what runs for good still does. */
async function isFinishedOrRuns({ workflowId, runId, type }: WorkflowExecutionInfo): Promise<void> {
  const { status } = await slot.client.workflow.getHandle(workflowId, runId).describe();
  expect([workflowId, status.name]).toEqual([
    workflowId,
    expect.stringMatching(/^(COMPLETED|CONTINUED_AS_NEW|RUNNING)$/),
  ]);
  const newest = await slot.client.workflow.getHandle(workflowId).describe();
  const isForGood = !['mobilePush', 'notification', 'notificationRoute', 'subscriptionWorker'].includes(type);
  if (isForGood) expect([workflowId, newest.status.name]).toEqual([workflowId, 'RUNNING']);
}

/** Every history, whoever wrote it, is one that this checkout's workflows can have; and no task of one has failed. */
async function allReplay(): Promise<void> {
  const all = await executions();
  for (const { workflowId, runId } of all) {
    const handle = slot.client.workflow.getHandle(workflowId, runId);
    const { events } = await handle.fetchHistory();
    const failures = (events ?? [])
      .map(({ workflowTaskFailedEventAttributes: failed }) => failed)
      // The server's word for a signal that came while the workflow was ending: it is asked again.
      .filter(
        (failed) =>
          failed && failed.cause !== WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
      )
      .map((failed) => failed?.failure?.message ?? failed?.cause);
    expect([workflowId, failures]).toEqual([workflowId, []]);
    await handle.query('__temporal_workflow_metadata');
  }
}

/** What can be wrong with Temporal, and with the workers. */
import { ScheduleNotFoundError } from '@temporalio/client';
import { WORKFLOW_TASKS } from '../api/task-queue-types.ts';
import type { OperatorResources } from '../client/resources.ts';
import { SCHEDULE_LIMIT_MS, bounded, dateOf } from '../client/temporal.ts';
import type { needsOf } from '../config/load.ts';
import type { NeededSchedule } from '../config/variables.ts';
import {
  isUnknownNamespace,
  missingSearchAttributes,
  namesOf,
  namespaceRetentionMs,
} from '../migrations/namespace.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn, warnIf } from './checks.ts';
import { durationOf } from './output.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

const OLDEST_SERVER = [1, 29] as const;
const DAY_MS = 86_400_000;
/** Workers ask for work once a minute at least. */
const STALE_POLLER_MS = 120_000;

export function temporalChecks(
  resources: OperatorResources,
  reach: () => Promise<void>,
  needs: ReturnType<typeof needsOf>,
): CheckGroup {
  return [
    ['Temporal', () => answers(resources, reach)],
    ['Temporal: retention', () => retention(resources)],
    ['Temporal: search attributes', () => searchAttributes(resources)],
    ...needs.taskQueues.map((queue): CheckGroup[number] => [
      `workers: ${queue}`,
      () => workers(resources, queue),
    ]),
    ...needs.schedules.map((needed): CheckGroup[number] => [
      `schedule: ${needed.id}`,
      () => schedule(resources, needed),
      SCHEDULE_LIMIT_MS,
    ]),
  ];
}

async function answers(
  { temporal, namespace }: OperatorResources,
  reach: () => Promise<void>,
): Promise<Diagnosis> {
  try {
    await reach();
  } catch (failure) {
    if (!isUnknownNamespace(failure)) throw failure;
    return error(
      `there is no namespace ${namespace}`,
      'run galaxy-notify setup, or correct TEMPORAL_NAMESPACE',
    );
  }
  const began = performance.now();
  const { serverVersion = '' } = await bounded(temporal, () => temporal.workflowService.getSystemInfo({}));
  const detail = `version ${serverVersion}, namespace ${namespace}, answers in ${Math.round(performance.now() - began)} ms`;
  const [major = 0, minor = 0] = serverVersion.split('.').map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_SERVER;
  const isOld = major < oldestMajor || (major === oldestMajor && minor < oldestMinor);
  return isOld ? error(detail, `server ${OLDEST_SERVER.join('.')} or later is needed`) : ok(detail);
}

async function retention({ temporal, namespace }: OperatorResources): Promise<Diagnosis> {
  const ms = (await bounded(temporal, () => namespaceRetentionMs(temporal.connection, namespace))) ?? 0;
  const detail = `closed workflows are kept for ${durationOf(ms)}`;
  return warnIf(
    ms < DAY_MS,
    detail,
    'too short to look into what happened last night: galaxy-notify setup --retention 72h',
  );
}

async function searchAttributes({ temporal, namespace }: OperatorResources): Promise<Diagnosis> {
  const missing = namesOf(
    await bounded(temporal, () => missingSearchAttributes(temporal.connection, namespace, SEARCH_ATTRIBUTES)),
  );
  return missing.length === 0
    ? ok('all there')
    : error(
        `missing: ${missing.join(', ')}`,
        'run galaxy-notify setup, or start the service: both create them, if they may',
      );
}

async function workers({ temporal, namespace }: OperatorResources, taskQueue: string): Promise<Diagnosis> {
  const { pollers } = await bounded(temporal, () =>
    temporal.workflowService.describeTaskQueue({
      namespace,
      taskQueue: { name: taskQueue },
      taskQueueType: WORKFLOW_TASKS,
    }),
  );
  const recent = (pollers ?? []).filter(
    ({ lastAccessTime }) => Date.now() - (dateOf(lastAccessTime)?.getTime() ?? 0) < STALE_POLLER_MS,
  );
  const names = [...new Set(recent.map(({ identity }) => identity ?? ''))];
  return names.length === 0
    ? error(
        `no worker polls the task queue ${taskQueue}`,
        'start the service with this role: nothing of it is worked on',
      )
    : ok(`${names.length} polling: ${names.join(', ')}`);
}

async function schedule(
  { temporal }: OperatorResources,
  { id, everyMs, purpose }: NeededSchedule,
): Promise<Diagnosis> {
  try {
    const { state, info, spec } = await bounded(
      temporal,
      () => temporal.schedule.getHandle(id).describe(),
      SCHEDULE_LIMIT_MS,
    );
    if (state.paused) {
      return warn(`${id} is paused: ${state.note ?? ''}`, `until it is unpaused, ${purpose}`);
    }
    const next = info.nextActionTimes[0];
    const every = spec.intervals?.[0]?.every;
    const isOther = every !== everyMs;
    return warnIf(
      isOther,
      `next run ${next ? next.toISOString() : 'not planned'}${isOther ? `, every ${durationOf(every ?? 0)} instead of ${durationOf(everyMs)}` : ''}`,
      'galaxy-notify setup brings it to the configured interval, as does a start of the service',
    );
  } catch (failure) {
    if (!(failure instanceof ScheduleNotFoundError)) throw failure;
    return error(
      `there is no schedule ${id}: ${purpose}`,
      'run galaxy-notify setup, or start the service with its role: both create the schedule',
    );
  }
}

/** Preparing a Temporal namespace and a database for the service, step by step; what is there stays as it is. */
import type { Client } from '@temporalio/client';
import type { NeededSchedule } from '../config/variables.ts';
import { durationOf } from './output.ts';
import {
  addSearchAttributes,
  changeRetention,
  createNamespace,
  ensureSchedule,
  isRefused,
  isUnknownNamespace,
  lackOfSearchAttributes,
  missingSearchAttributes,
  namespaceRetentionMs,
  scheduleIntervalMs,
} from '../migrations/namespace.ts';
import { OperationFailedError, causeOf } from '../client/errors.ts';
import { SCHEDULE_LIMIT_MS, bounded } from '../client/temporal.ts';
import { oncePossible } from '../client/wait-until.ts';

/** How a new namespace is made when nothing else is asked for: time to look into what happened over a weekend. */
export const DEFAULT_RETENTION_MS = 72 * 3_600_000;
/** A server tells its hosts about a new namespace every 10 s. */
const KNOWN_LIMIT_MS = 30_000;

export interface SetupStep {
  name: string;
  /** `missing`: it would be created or changed, but this was a dry run. */
  status: 'ok' | 'created' | 'changed' | 'missing';
  detail: string;
}

export interface SetupNeeds {
  temporal: Client;
  namespace: string;
  /** Absent: 72 h for a new namespace; one that is there keeps its own. */
  retentionMs?: number;
  searchAttributes: readonly string[];
  schedules: readonly NeededSchedule[];
  isDryRun: boolean;
}

/** A step of its own, so that callers can show each as it is done. @throws OperationFailedError. */
export async function setUpNamespace(needs: SetupNeeds): Promise<SetupStep> {
  const { temporal, namespace, retentionMs, isDryRun } = needs;
  const { connection } = temporal;
  const name = `namespace ${namespace}`;
  const found = await bounded(temporal, () => namespaceRetentionMs(connection, namespace));
  if (found === undefined) {
    const wantedMs = retentionMs ?? DEFAULT_RETENTION_MS;
    const detail = `closed workflows are kept for ${durationOf(wantedMs)}`;
    if (isDryRun) return { name, status: 'missing', detail };
    await orExplain(
      () => bounded(temporal, () => createNamespace(connection, namespace, wantedMs)),
      `the namespace ${namespace} is not there, and this server does not let us create it`,
      `tcld namespace create --namespace ${namespace} --region <region> --retention-days ${Math.max(1, Math.round(wantedMs / 86_400_000))}`,
    );
    return { name, status: 'created', detail };
  }
  if (retentionMs === undefined || retentionMs === found) {
    return { name, status: 'ok', detail: `closed workflows are kept for ${durationOf(found)}` };
  }
  const detail = `closed workflows are kept for ${durationOf(retentionMs)}, before: ${durationOf(found)}`;
  if (isDryRun) return { name, status: 'missing', detail };
  await orExplain(
    () => bounded(temporal, () => changeRetention(connection, namespace, retentionMs)),
    `this server does not let us change the retention of ${namespace}`,
    `tcld namespace retention set --namespace ${namespace} --retention-days ${Math.max(1, Math.round(retentionMs / 86_400_000))}`,
  );
  return { name, status: 'changed', detail };
}

/** @throws OperationFailedError. */
export async function setUpSearchAttributes(needs: SetupNeeds): Promise<SetupStep> {
  const { temporal, namespace, searchAttributes, isDryRun } = needs;
  const { connection } = temporal;
  const name = 'search attributes';
  const missing = await onceKnown(needs, () =>
    missingSearchAttributes(connection, namespace, searchAttributes),
  );
  if (missing.length === 0) return { name, status: 'ok', detail: `all ${searchAttributes.length} are there` };
  const detail = missing.join(', ');
  if (isDryRun) return { name, status: 'missing', detail };
  await orExplain(
    () => onceKnown(needs, () => addSearchAttributes(connection, namespace, missing)),
    lackOfSearchAttributes(namespace, missing),
    missing
      .map(
        (attribute) =>
          `tcld namespace search-attributes add --namespace ${namespace} --sa ${attribute}=Keyword`,
      )
      .join('\n  '),
  );
  return { name, status: 'created', detail };
}

export async function setUpSchedule(needs: SetupNeeds, schedule: NeededSchedule): Promise<SetupStep> {
  const { temporal, isDryRun } = needs;
  const { id, everyMs } = schedule;
  const name = `schedule ${id}`;
  const found = await onceKnown(needs, () => scheduleIntervalMs(temporal, id), SCHEDULE_LIMIT_MS);
  if (found === everyMs) return { name, status: 'ok', detail: `every ${durationOf(everyMs)}` };
  const detail =
    found === undefined
      ? `every ${durationOf(everyMs)}`
      : `every ${durationOf(everyMs)}, before: ${durationOf(found)}`;
  if (isDryRun) return { name, status: 'missing', detail };
  await onceKnown(needs, () => ensureSchedule(temporal, schedule), SCHEDULE_LIMIT_MS);
  return { name, status: found === undefined ? 'created' : 'changed', detail };
}

/** A namespace that was just created is not known everywhere; calls fail until it is. */
function onceKnown<T>({ temporal }: SetupNeeds, call: () => Promise<T>, limitMs?: number): Promise<T> {
  return oncePossible(() => bounded(temporal, call, limitMs), isUnknownNamespace, KNOWN_LIMIT_MS);
}

/** Says what to do instead where the server refuses: Temporal Cloud has tools of its own for it. */
async function orExplain(call: () => Promise<void>, what: string, command: string): Promise<void> {
  try {
    await call();
  } catch (error) {
    if (!isRefused(error)) throw error;
    throw new OperationFailedError(
      `${what} (${causeOf(error)}). On Temporal Cloud, do it in the Web UI or with:\n  ${command}\nthen run setup again`,
      { cause: error },
    );
  }
}

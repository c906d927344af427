/**
 * The real work of an intent, for a process of the benchmark that is not the service: its activities with its connections
 * and its log, configured by the environment as the service is.
 */
import type { Pool } from 'pg';
import type { IntentActivities } from '../activities/intent/acceptance.ts';
import type { RouteActivities } from '../activities/intent/routes.ts';
import { loadConfig } from '../config/load.ts';
import { migrate } from '../migrations/migrate.ts';
import { openConnections } from '../workers/connections.ts';
import { OpenParts } from '../workers/context.ts';
import { provideEndpoints } from '../workers/embedded.ts';
import { openIntents } from '../workers/intent.ts';
import { createKeyProblems } from '../workers/key-boxes.ts';
import { createLogger } from '../workers/logger.ts';
import { startTelemetry } from '../workers/telemetry.ts';
import { installTemporalRuntime } from '../workers/service.ts';
import type { NotificationInput } from '../workflows/intent/contract.ts';
import { writeOpenRows } from '../dev/intent-rows.ts';
import { intentFor } from './intent.ts';

/** @throws what the servers' clients throw when one does not answer. */
export async function openWork() {
  const config = loadConfig();
  const log = createLogger(config.values.NOTIFICATION_LOG_LEVEL);
  installTemporalRuntime(log);
  const { endpoints } = await provideEndpoints(config, () => undefined);
  const telemetry = startTelemetry(config, log);
  const context = {
    ...{ config, endpoints, log, meter: telemetry.meter },
    draining: new AbortController().signal,
    open: new OpenParts(log),
    renewable: [],
    keyProblems: createKeyProblems(telemetry.meter, log),
  };
  const connections = await openConnections(context, telemetry);
  await migrate(endpoints.postgresDsn);
  const activities = openIntents(context).activities(connections) as IntentActivities & RouteActivities;
  return { config, endpoints, connections, activities };
}

/**
 * Inserts the n-th intent of a round, as the reader does; its id is like those of entries, which acceptance puts in order.
 *
 * @returns the input of its workflow.
 */
export async function insertNth(db: Pool, beganAtMs: number, n: number): Promise<NotificationInput> {
  const intent = { ...intentFor(1), notificationId: `${beganAtMs}-${n}` };
  await writeOpenRows(db, [intent]);
  return { notificationId: intent.notificationId, notificationType: intent.notificationType };
}

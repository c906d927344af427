/**
 * The connections that all kinds of work share, opened once per process and checked before anything else starts. Each
 * failure says which dependency, where it was looked for, and why it did not answer.
 */
import { Client } from '@temporalio/client';
import type pg from 'pg';
import { allOf } from '../api/within.ts';
import type { ProcessContext } from './context.ts';
import { DependencyError } from './context.ts';
import type { PayloadEncryption } from './key-boxes.ts';
import { openPayloadEncryption } from './key-boxes.ts';
import { connectPostgres } from './postgres.ts';
import type { RedisConnections } from './redis.ts';
import { connectRedis } from './redis.ts';
import type { Telemetry } from './telemetry.ts';
import type { TemporalAccess } from './temporal-connection.ts';
import { connectTemporal } from './temporal-connection.ts';

/** Without what is about encryption when nothing is encrypted. */
export interface Connections extends RedisConnections, TemporalAccess, Partial<PayloadEncryption> {
  db: pg.Pool;
  client: Client;
}

/** @throws DependencyError when one of the servers does not answer; all that do not are named. */
export async function openConnections(
  context: ProcessContext,
  { clientInterceptors }: Pick<Telemetry, 'clientInterceptors'>,
): Promise<Connections> {
  const [redis, db, temporal] = await allOf(
    [connectRedis(context), connectPostgres(context), connectTemporal(context)],
    DependencyError,
  );
  const encryption = openPayloadEncryption(context, db);
  const client = new Client({
    connection: temporal.temporal,
    namespace: temporal.namespace,
    interceptors: { workflow: clientInterceptors },
    ...(encryption ? { dataConverter: encryption.dataConverter } : {}),
  });
  return { ...redis, ...temporal, db, client, ...encryption };
}

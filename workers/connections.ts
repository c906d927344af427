/**
 * The connections that all kinds of work share, opened once per process and checked before anything else starts. Each
 * failure says which dependency, where it was looked for, and why it did not answer.
 */
import { Client } from '@temporalio/client';
import type { DataConverter } from '@temporalio/common';
import type pg from 'pg';
import { given } from '../api/given.ts';
import { allOf } from '../api/within.ts';
import type { ProcessContext } from './context.ts';
import { DependencyError } from './context.ts';
import { openDataConverter } from './key-boxes.ts';
import { connectPostgres } from './postgres.ts';
import type { RedisConnections } from './redis.ts';
import { connectRedis } from './redis.ts';
import type { Telemetry } from './telemetry.ts';
import type { TemporalAccess } from './temporal-connection.ts';
import { connectTemporal } from './temporal-connection.ts';

export interface Connections extends RedisConnections, TemporalAccess {
  db: pg.Pool;
  client: Client;
  /** Absent when nothing is encrypted. */
  dataConverter?: DataConverter;
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
  const encryption = given({ dataConverter: openDataConverter(context) });
  const client = new Client({
    connection: temporal.temporal,
    namespace: temporal.namespace,
    interceptors: { workflow: clientInterceptors },
    ...encryption,
  });
  return { ...redis, ...temporal, db, client, ...encryption };
}

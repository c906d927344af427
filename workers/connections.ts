/**
 * The connections that all kinds of work share, opened once per process and checked before anything else starts. Each
 * failure says which dependency, where it was looked for, and why it did not answer.
 */
import { Client } from '@temporalio/client';
import type { DataConverter } from '@temporalio/common';
import type { Worker } from '@temporalio/worker';
import { NativeConnection } from '@temporalio/worker';
import type pg from 'pg';
import { reasonOf } from '../activities/reason.ts';
import { given } from '../api/given.ts';
import { allOf } from '../api/within.ts';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/service.ts';
import type { ProcessContext } from './context.ts';
import { DependencyError, reach } from './context.ts';
import { openDataConverter } from './key-boxes.ts';
import { connectPostgres } from './postgres.ts';
import type { RedisConnections } from './redis.ts';
import { connectRedis } from './redis.ts';
import { Replaceable } from './replaceable.ts';
import type { Telemetry } from './telemetry.ts';

interface TemporalAccess {
  /** For everything but workers. */
  temporal: NativeConnection;
  namespace: string;
  /** Workers must have the connection itself. */
  workerConnection(): NativeConnection;
  /** Takes workers that are to go on with the connection of the time. */
  keepConnected(workers: readonly Worker[]): void;
}

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

/**
 * When the API key or a certificate changes, a new connection takes the place of the old one; workers go on with it.
 *
 * @throws DependencyError when Temporal does not answer.
 */
async function connectTemporal(context: ProcessContext): Promise<TemporalAccess> {
  const { config, endpoints, open, renewable, log } = context;
  const { connectionOptions, namespace } = temporalConnection(config, endpoints.temporalAddress);
  const where = `Temporal at ${connectionOptions.address ?? 'localhost:7233'}, namespace ${namespace}`;
  const workers: Worker[] = [];
  return reach(where, 'TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE', async () => {
    const held = new Replaceable(await connect(config));
    open.add('Temporal', () => held.current.close());
    renewable.push({
      what: 'Temporal',
      variables: ['TEMPORAL_'],
      async renew(next) {
        const fresh = await connect(next);
        for (const worker of workers) if (worker.getState() === 'RUNNING') worker.connection = fresh;
        await held
          .replace(fresh)
          .close()
          .catch((error: unknown) =>
            log.warn({ reason: reasonOf(error) }, 'former connection to Temporal not closed'),
          );
      },
    });
    return {
      temporal: held.facade,
      namespace,
      workerConnection: () => held.current,
      keepConnected: (others) => workers.push(...others),
    };
  });

  async function connect(values: Config): Promise<NativeConnection> {
    const options = temporalConnection(values, endpoints.temporalAddress).connectionOptions;
    const connection = await NativeConnection.connect(options);
    try {
      await connection.workflowService.describeNamespace({ namespace });
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  }
}

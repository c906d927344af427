/**
 * The connection to Temporal, of workers and of the client. When the API key or a certificate changes, a new connection
 * takes its place; workers go on with it.
 */
import type { Worker } from '@temporalio/worker';
import { NativeConnection } from '@temporalio/worker';
import { reasonOf } from '../activities/reason.ts';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/service.ts';
import type { ProcessContext } from './context.ts';
import { reach } from './context.ts';
import { Replaceable } from './replaceable.ts';

export interface TemporalAccess {
  /** For everything but workers. */
  temporal: NativeConnection;
  namespace: string;
  /** Workers must have the connection itself. */
  workerConnection(): NativeConnection;
  /** Takes workers that are to go on with the connection of the time. */
  keepConnected(workers: readonly Worker[]): void;
}

/** @throws DependencyError when Temporal does not answer. */
export async function connectTemporal(context: ProcessContext): Promise<TemporalAccess> {
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

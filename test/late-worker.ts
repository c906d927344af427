/** A process with one activity, which writes down who made it and says what became of it. Arguments: address, namespace, task queue, DSN, its name. */
import { NativeConnection, Worker } from '@temporalio/worker';
import pg from 'pg';
import { watchAttempts } from '../activities/attempt.ts';
import { query } from '../activities/postgres.ts';
import { createLogger } from '../workers/logger.ts';
import { installTemporalRuntime } from '../workers/temporal-worker.ts';

const [address, namespace, taskQueue, connectionString, name] = process.argv.slice(2) as [
  ...[string, string, string, string, string],
];
const INSERT = { name: 'write_name', text: 'INSERT INTO written (name) VALUES ($1)' };

installTemporalRuntime(createLogger('silent'));
const db = new pg.Pool({ connectionString });
const worker = await Worker.create({
  ...{ connection: await NativeConnection.connect({ address }), namespace, taskQueue, identity: name },
  activities: { write: () => query(db, INSERT, [name]) },
  // One task at most arrives while the process stands still.
  activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
  interceptors: {
    activity: [
      () => ({
        inbound: {
          async execute(input, next) {
            try {
              const result = await next(input);
              process.stdout.write('written\n');
              return result;
            } catch (error) {
              process.stdout.write(`${(error as { type?: string }).type}\n`);
              throw error;
            }
          },
        },
      }),
      ...watchAttempts().interceptors,
    ],
  },
});
await worker.run();

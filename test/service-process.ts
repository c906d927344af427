/**
 * The service as a separate process, which can be killed, and what the outside sees of its work: fault tests judge it
 * by the streams and tables that it leaves.
 */
import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Redis } from 'ioredis';
import type { EntryFields } from '../api/intent/entry.ts';
import type { LogLine, Slot } from './harness.ts';
import { environmentOf, eventually } from './harness.ts';
import { shared } from './of-tests.ts';
import { PROGRAM_ENV } from './program-env.ts';
import { asUserOf } from './redis-users.ts';

const INTENTS = 'notification:intents';
export const GATEWAY = 'gateway:client-events';
export const MAIL = 'mail:delivery_commands';
export const OFFSET_KEY = `notification:stream_offsets:${Buffer.from(INTENTS).toString('base64url')}`;

/** Loading the sources and connecting, beside whatever else the machine does. */
const READY_LIMIT_MS = 120_000;

export type ServiceProcess = ReturnType<typeof supervise>['process'];

/** Starts services against the servers of a slot; `killAll` belongs into `afterEach`, before the slot is released. */
export function createFleet(slot: Slot) {
  const started: ServiceProcess[] = [];
  return {
    /**
     * Resolves when the service is ready. `env` adds to the environment; `folder` holds the sources, by default those
     * of this checkout.
     */
    async start(env: Record<string, string> = {}, folder = process.cwd()): Promise<ServiceProcess> {
      const child = spawn(process.execPath, ['workers/main.ts'], {
        cwd: folder,
        env: {
          ...PROGRAM_ENV,
          ...environmentOf(slot),
          ...serversOf(slot),
          // Only this run's Redis knows the users, and an image has its own variables.
          ...(env['NOTIFICATION_REDIS_MASTER_ADDR'] === undefined && folder === process.cwd()
            ? asUserOf(env['NOTIFICATION_ROLES'] ?? 'intent')
            : {}),
          ...env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const service = supervise(child);
      started.push(service.process);
      await service.ready();
      return service.process;
    },
    async killAll(): Promise<void> {
      await Promise.all(started.map((service) => service.end('SIGKILL')));
    },
  };
}

/** The processes of a file of tests, or of each test, killed before their slot is released. */
export const { ofTests: fleetOfTests, ofEachTest: fleetOfEachTest } = shared(
  (slot: () => Slot) => createFleet(slot()),
  (fleet) => fleet.killAll(),
);

function serversOf({ endpoints }: Slot): Record<string, string> {
  const { redis, postgresDsn, userServiceUrl } = endpoints;
  return {
    NOTIFICATION_REDIS_MASTER_ADDR: `${redis.host}:${redis.port}`,
    NOTIFICATION_POSTGRES_PRIMARY_DSN: postgresDsn,
    NOTIFICATION_USER_SERVICE_BASE_URL: userServiceUrl,
    // Tests count every entry; trimming would hide some.
    NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100000',
  };
}

function supervise(child: ChildProcess) {
  const lines: LogLine[] = [];
  const errors: string[] = [];
  createInterface({ input: child.stdout! }).on('line', (line) => {
    // SIGKILL may cut the last one short.
    if (line.endsWith('}')) lines.push(JSON.parse(line) as LogLine);
  });
  createInterface({ input: child.stderr! }).on('line', (line) => errors.push(line));
  const closed = once(child, 'close');
  // Should the test's own process end first.
  const killOrphan = () => child.kill('SIGKILL');
  process.once('exit', killOrphan);
  const isRunning = () => child.exitCode === null && child.signalCode === null;

  return {
    process: {
      pid: child.pid!,
      /** Its log so far. */
      lines,
      isRunning,
      /**
       * Sends a signal and waits until the process has ended.
       *
       * @returns its exit code, null when the signal ended it.
       */
      async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null> {
        if (isRunning()) child.kill(signal);
        await closed;
        process.off('exit', killOrphan);
        return child.exitCode;
      },
    },
    async ready(): Promise<void> {
      await eventually(
        'the service process to be ready or to end',
        async () => !isRunning() || lines.some(({ msg }) => msg === 'service ready'),
        READY_LIMIT_MS,
      );
      if (!isRunning()) throw new Error(`the service process ended early: ${errors.join('\n')}`);
    },
  };
}

/** Appends entries in this order. @returns their ids. */
export async function append(redis: Redis, entries: readonly EntryFields[]): Promise<string[]> {
  const transaction = redis.multi();
  for (const fields of entries) transaction.xadd(INTENTS, '*', ...fields.flat());
  const replies = (await transaction.exec()) ?? [];
  return replies.map(([error, id]) => {
    if (error) throw error;
    return String(id);
  });
}

/** The ids on which consumers of both outbound streams deduplicate, one for each entry, sorted. */
export async function outboundIds(redis: Redis): Promise<string[]> {
  const ids = async (stream: string, field: string) =>
    (await redis.xrange(stream, '-', '+')).map(([, fields]) => fields[fields.indexOf(field) + 1]!);
  return [...(await ids(GATEWAY, 'event_id')), ...(await ids(MAIL, 'delivery_id'))].sort();
}

/** What the two streams hold when each of these notifications has reached its user on both channels once. */
export const deliveriesTo = (userId: string, ids: readonly string[]): string[] =>
  ids.flatMap((id) => [`${id}/email:user:${userId}`, `${id}/push:user:${userId}`]).sort();

/** Waits until each of these notifications has reached user-1 on both channels once, and nothing else has come. */
export async function delivered({ redis }: Pick<Slot, 'redis'>, ...ids: string[]): Promise<void> {
  await eventually('the deliveries', async () => (await outboundIds(redis)).length >= 2 * ids.length);
  expect(await outboundIds(redis)).toEqual(deliveriesTo('user-1', ids));
}

/** How many routes there are by status and number of attempts, such as `published after 1`. */
export async function routeCounts(slot: Slot): Promise<Record<string, number>> {
  const { rows } = await slot.db.query<{ name: string; count: number }>(
    `SELECT status || ' after ' || attempt_count AS name, count(*)::int AS count
       FROM notification.routes
      WHERE status <> 'skipped'
      GROUP BY 1`,
  );
  return Object.fromEntries(rows.map(({ name, count }) => [name, count]));
}

/** Waits until so many routes are published, each by its first attempt that counted; says how they stand if not. */
export const allPublished = (slot: Slot, count: number, limitMs: number) =>
  eventually(
    `${count} published routes`,
    async () => {
      const counts = await routeCounts(slot);
      if (counts['published after 1'] === count) return true;
      throw new Error(`there are ${JSON.stringify(counts)}`);
    },
    limitMs,
  );

/** Waits until Temporal has no notification and no route left to do. */
export const nothingLeftRunning = (slot: Slot, limitMs: number) =>
  eventually(
    'all workflows but the reader to have ended',
    async () => {
      const { count } = await slot.client.workflow.count(
        "ExecutionStatus = 'Running' AND WorkflowType IN ('notification', 'notificationRoute')",
      );
      return count === 0;
    },
    limitMs,
  );

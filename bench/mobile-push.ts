/**
 * `npm run bench`: how many mobile push jobs and sends a second one process makes, and how long a push takes from its
 * XADD to FCM. Embedded servers with durable storage, the stand-in for FCM in the process of the service, and all on
 * this machine: what is measured is the orchestration.
 */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import pg from 'pg';
import { tableOf } from '../client/table.ts';
import type { FcmStandIn } from '../dev/fcm.ts';
import { loadConfig } from '../workers/config.ts';
import { SetupError, provideEndpoints } from '../workers/endpoints.ts';
import { explain } from '../workers/explain.ts';
import { createLogger } from '../workers/logger.ts';
import type { Service } from '../workers/service.ts';
import { startService } from '../workers/service.ts';

const HELP = `Usage: npm run bench [-- options]

Starts everything on free ports with data of its own, publishes mobile push jobs all at once, and measures how they
are sent to a stand-in for FCM: three rounds after a warm-up.

  --jobs n      jobs of each round, each for a user of its own; default 300
  --devices n   devices of each user; default 2
  --json        print the result as JSON
  --help        this text
`;

const ROUNDS = 3;
const WARM_UP_JOBS = 30;
/** No round takes as long unless something is broken. */
const ROUND_LIMIT_MS = 600_000;

type Bench = { redis: Redis; db: pg.Client; fcm: FcmStandIn; stream: string; devices: number };

/** Latencies, ms, are from the XADD of a job to FCM's receipt of each of its pushes. */
type Round = Record<'jobsPerSecond' | 'sendsPerSecond' | 'p50Ms' | 'p99Ms', number>;

async function main(): Promise<void> {
  const { values: options } = parseArgs({
    options: {
      jobs: { type: 'string', default: '300' },
      devices: { type: 'string', default: '2' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (options.help) return void process.stdout.write(HELP);
  const [jobs, devices] = [countOf('--jobs', options.jobs), countOf('--devices', options.devices)];

  // Ending through `exit` takes the embedded servers along, which a signal by itself would leave behind.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));
  const config = benchConfig();
  const { NOTIFICATION_DATA_DIR: dataDir, NOTIFICATION_MOBILE_STREAM: stream } = config.values;
  const provided = provideEndpoints(config, report);
  // After the servers' own listeners, which stop what is still running.
  const remove = () => rmSync(dataDir, { recursive: true, force: true });
  await provided.catch(() => undefined).finally(() => process.once('exit', remove));
  const { endpoints, stack } = await provided;
  const redis = new Redis(endpoints.redis);
  const db = new pg.Client({ connectionString: endpoints.postgresDsn });
  let service: Service | undefined;
  try {
    await db.connect();
    service = await startService({ config, endpoints, log: createLogger('error', process.stderr) });
    const bench: Bench = { redis, db, fcm: stack!.fcmStandIn!, stream, devices };
    await db.query(REGISTER_DEVICES, [Math.max(jobs, WARM_UP_JOBS), devices]);
    await measure(bench, WARM_UP_JOBS);
    const rounds: Round[] = [];
    while (rounds.length < ROUNDS) {
      report(`Round ${rounds.length + 1} of ${ROUNDS}: ${jobs} jobs for ${devices} devices each`);
      rounds.push(await measure(bench, jobs));
    }
    const { highest: highestSockets } = bench.fcm.sockets;
    const [cores, load] = [availableParallelism(), loadavg()[0]!];
    const machine = { cores, cpu: cpus()[0]?.model, node: process.version, load };
    const date = new Date().toISOString();
    const result = { date, machine, jobs, devices, rounds, median: medianOf(rounds), highestSockets };
    const text = options.json
      ? JSON.stringify(result, null, 2)
      : `\n${tableOfRounds(rounds)}\n
${jobs} jobs at once for ${devices} devices each; at most ${highestSockets} sockets to FCM open
${cores} cores (${machine.cpu}), load ${load.toFixed(1)}, Node ${machine.node}, ${date.slice(0, 10)}`;
    process.stdout.write(`${text}\n`);
  } finally {
    await service?.stop();
    redis.disconnect();
    await db.end();
    await stack?.stop();
  }
}

/** Of the caller's environment only the path of a program: no server that is configured is measured, or sent to. */
function benchConfig() {
  const { TEMPORAL_CLI_PATH: cliPath } = loadConfig().values;
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-bench-'));
  // As root, PostgreSQL runs as a user of its own, who must get in.
  chmodSync(dataDir, 0o755);
  const servers = ['REDIS', 'POSTGRES', 'TEMPORAL', 'TEMPORAL_UI', 'USER_SERVICE', 'FCM'];
  return loadConfig({
    ...Object.fromEntries(servers.map((server) => [`NOTIFICATION_DEV_${server}_PORT`, '0'])),
    ...(cliPath === undefined ? {} : { TEMPORAL_CLI_PATH: cliPath }),
    NOTIFICATION_ROLES: 'mobile-push',
    NOTIFICATION_DATA_DIR: dataDir,
    NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
  });
}

/** Publishes so many jobs at once and waits until all of them are sent. */
async function measure({ redis, db, fcm, stream, devices }: Bench, jobs: number): Promise<Round> {
  const [before, pipeline] = [fcm.requests.length, redis.pipeline()];
  for (let user = 1; user <= jobs; user += 1) {
    const content = ['title', 'Your turn', 'body', 'Turn 54 is ready.', 'channel', 'turns'];
    pipeline.xadd(stream, '*', 'userId', `bench-${user}`, ...content, 'data', JSON.stringify({ user }));
  }
  const ids = ((await pipeline.exec()) ?? []).map(([error, id]) => {
    if (error) throw error;
    return String(id);
  });
  const endedAt = await settled(db, ids);
  const receipts = fcm.requests.slice(before);
  const sends = jobs * devices;
  if (receipts.length !== sends) throw new Error(`FCM got ${receipts.length} requests for ${sends} sends`);
  const beganAt = timeOf(ids[0]!);
  const latencies = receipts
    .map(({ at, body }) => at - timeOf(ids[Number((body.message['data'] as { user: string }).user) - 1]!))
    .sort(ascending);
  return {
    jobsPerSecond: (jobs * 1_000) / (endedAt - beganAt),
    sendsPerSecond: (sends * 1_000) / (receipts.at(-1)!.at - beganAt),
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
  };
}

/** @returns when the last of these jobs was settled, ms since the epoch. @throws Error unless all of them are sent. */
async function settled(db: pg.Client, ids: string[]): Promise<number> {
  const deadline = Date.now() + ROUND_LIMIT_MS;
  for (;;) {
    const { rows } = await db.query<{ settled: number; sent: number; at: Date }>(COUNT_SETTLED, [ids]);
    const { settled, sent, at } = rows[0]!;
    if (settled === ids.length && sent === settled) return at.getTime();
    if (settled > sent || Date.now() > deadline) {
      throw new Error(`of ${ids.length} jobs ${settled} are settled and ${sent} sent`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** When an entry was appended, by the clock of Redis, ms. */
const timeOf = (id: string): number => Number(id.split('-')[0]);
const ascending = (a: number, b: number): number => a - b;
const quantile = (sorted: number[], share: number): number => sorted[Math.ceil(share * sorted.length) - 1]!;

function medianOf(rounds: Round[]): Round {
  const median = (of: keyof Round) => quantile(rounds.map((round) => round[of]).sort(ascending), 0.5);
  const [jobsPerSecond, sendsPerSecond] = [median('jobsPerSecond'), median('sendsPerSecond')];
  return { jobsPerSecond, sendsPerSecond, p50Ms: median('p50Ms'), p99Ms: median('p99Ms') };
}

function countOf(option: string, text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text))
    throw new SetupError(`${option} must be a whole number from 1 (got ${text})`);
  return Number(text);
}

function tableOfRounds(rounds: Round[]): string {
  const rows = [...rounds, medianOf(rounds)].map((round, index) => [
    index < rounds.length ? String(index + 1) : 'median',
    ...[round.jobsPerSecond, round.sendsPerSecond].map((rate) => rate.toFixed(1)),
    ...[round.p50Ms, round.p99Ms].map((ms) => `${Math.round(ms)} ms`),
  ]);
  return tableOf(['ROUND', 'JOBS/S', 'SENDS/S', 'P50 TO FCM', 'P99 TO FCM'], rows);
}

function report(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** $1 users, $2 devices of each. */
const REGISTER_DEVICES = `
  INSERT INTO public.device_token ("userId", token)
  SELECT format('bench-%s', "user"), format('bench-%s-%s', "user", device)
    FROM generate_series(1, $1::int) AS "user", generate_series(1, $2::int) AS device`;

/** $1 job ids. */
const COUNT_SETTLED = `
  SELECT (count(*) FILTER (WHERE status <> 'pending'))::int AS settled,
         (count(*) FILTER (WHERE status = 'sent'))::int AS sent, max(updated_at) AS at
    FROM notifications.notification_log WHERE job_id = ANY ($1)`;

try {
  await main();
} catch (error) {
  report(explain(error));
  process.exitCode = 1;
}

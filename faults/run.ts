/** One run: servers, service, work and faults together, and the ledger at the end. */
import { setTimeout as sleep } from 'node:timers/promises';
import { LOOPBACK } from '../dev/servers/ports.ts';
import { startTcpProxy } from '../dev/servers/tcp-proxy.ts';
import { startUserService } from '../dev/stand-ins/intent/user-service.ts';
import { migrate } from '../migrations/migrate.ts';
import { openCallbacks } from './account-callback.ts';
import type { Connections } from './connections.ts';
import { connectDirectly } from './connections.ts';
import { injectFaults } from './injector.ts';
import type { Arrivals } from './intent.ts';
import { openIntents } from './intent.ts';
import { createKeys } from './keys.ts';
import type { Spoiled } from './ledger/excuse.ts';
import type { Verdict } from './ledger/verdict.ts';
import { isClean } from './ledger/verdict.ts';
import { openMobilePush } from './mobile-push.ts';
import type { ModeName, Options, WorkName } from './options.ts';
import { commandOf } from './options.ts';
import { planFaults } from './plan.ts';
import { openProducer } from './producer.ts';
import type { Random } from './random.ts';
import { randomOf } from './random.ts';
import type { Result } from './report.ts';
import { faultRowsOf, machineOf } from './report.ts';
import { marksInLogs, marksInRows, marksInTemporal } from './secrets.ts';
import type { Server, Servers } from './servers.ts';
import { startServers } from './servers.ts';
import { countingFailedTasks } from './failed-tasks.ts';
import type { SupervisedService } from './services.ts';
import { ROOT, superviseService } from './services.ts';
import { openSubscriptions } from './subscription.ts';
import { openSymbols } from './symbol-config.ts';
import type { Arena, Planted, Work } from './work.ts';

const SERVICES = 2;
/**
 * For one call while servers come and go, and for anything at all to change while everything is waited for, ms: how long
 * all of it takes is a matter of the machine.
 */
const PERSIST_LIMIT_MS = 180_000;
const STANDSTILL_LIMIT_MS = 180_000;
const OFFER_LIMIT_MS = 5_000;
const POLL_MS = 200;
/** Of the time of the load: in more, doubles would hide behind faults. */
const MOST_EXCUSED = 0.05;

const OPENERS: Record<WorkName, (arena: Arena, arrivals: Arrivals) => Promise<Work>> = {
  intent: openIntents,
  'mobile-push': openMobilePush,
  'symbol-config': openSymbols,
  'account-callback': openCallbacks,
  subscription: openSubscriptions,
};

export async function run(options: Options, report: (line: string) => void): Promise<Result> {
  const closers: (() => Promise<unknown>)[] = [];
  const onClose = (close: () => Promise<unknown>) => void closers.push(close);
  try {
    return await runWith(options, report, onClose);
  } finally {
    for (const close of closers.reverse()) {
      await close().catch((error: Error) => report(`Not ended in good order: ${error.message}`));
    }
  }
}

const ENV_OF_MODE: Record<ModeName, Record<string, string>> = {
  child: { NOTIFICATION_ROUTE_DISPATCH: 'child' },
  on_failure: { NOTIFICATION_ROUTE_DISPATCH: 'on_failure' },
  direct: { NOTIFICATION_ROUTE_DISPATCH: 'direct' },
};

function modeOf(random: (purpose: string) => Random): ModeName {
  return random('dispatch').oneOf<ModeName>(['child', 'on_failure', 'direct']);
}

async function runWith(
  options: Options,
  report: (line: string) => void,
  onClose: (close: () => Promise<unknown>) => void,
): Promise<Result> {
  const { seed } = options;
  const random = (purpose: string) => randomOf(seed, purpose);
  const isEncrypted = options.isEncrypted ?? random('encryption').chance(0.5);
  const mode = options.mode ?? modeOf(random);
  report(
    `Starting PostgreSQL, Redis and Temporal${options.cluster ? ` ${options.cluster} as a cluster` : ''}`,
  );
  const servers = await startServers({ ...options, report });
  onClose(() => servers.stop());
  const userService = await startUserService();
  onClose(() => userService.stop());
  const users = await startTcpProxy({ host: LOOPBACK, port: Number(new URL(userService.url).port) });
  onClose(() => users.stop());

  const keys = createKeys(isEncrypted);
  const connections = connectDirectly(servers, keys.ofOperator());
  onClose(() => connections.close());
  await migrate(servers.dsnAt(servers.postgres.port));

  let startedAt = Date.now();
  const faults: Spoiled[] = [];
  const arrivals: Arrivals = { at: [] };
  const offered: Promise<unknown>[] = [];
  const arena: Arena = {
    ...connections,
    random,
    services: SERVICES,
    intents: options.intents,
    outcomes: options.outcomes,
    dataDir: servers.dataDir,
    faults,
    hasLost: () => faults.some(({ isLoss }) => isLoss),
    setUser: (id, user) => userService.setUser(id, user),
    openProducer: (stream, fieldsOf) =>
      openProducer({ host: LOOPBACK, port: servers.redis.port }, stream, fieldsOf),
    userServiceFails(times) {
      // One after the other: what piled up would keep the breakers of the service open until the end of the load.
      userService.heal();
      userService.fail({ failure: { kind: 'status', status: 503 }, times });
    },
    spread: (count) => spread(count, { beganAt: startedAt, overMs: options.seconds * 1_000 }),
    persist: (what, call) => attempted(what, call, PERSIST_LIMIT_MS),
    offer(call) {
      const result = call().catch(() => undefined);
      offered.push(result);
      return Promise.race([result, sleep(OFFER_LIMIT_MS, undefined)]);
    },
    until: (what, probe) =>
      attempted(
        what,
        async () => {
          if (!(await probe())) throw new Error('not yet');
        },
        STANDSTILL_LIMIT_MS,
      ),
  };
  const works: Work[] = [];
  for (const name of options.only) {
    const work = await OPENERS[name](arena, arrivals);
    works.push(work);
    onClose(() => work.stop());
  }
  const planted: Planted[] = [
    ...works.flatMap((work) => work.planted),
    ...keys.secrets().map((value) => ({ what: 'keys', value })),
  ];

  const env: Record<string, string> = {
    NOTIFICATION_ROLES: options.only.join(),
    ...ENV_OF_MODE[mode],
    NOTIFICATION_LOG_LEVEL: 'debug',
    NOTIFICATION_REDIS_MASTER_ADDR: `${LOOPBACK}:${servers.redis.proxy.port}`,
    NOTIFICATION_POSTGRES_PRIMARY_DSN: servers.dsnAt(servers.postgres.proxy.port),
    TEMPORAL_ADDRESS: `${LOOPBACK}:${servers.temporal.proxy.port}`,
    NOTIFICATION_USER_SERVICE_BASE_URL: `http://${LOOPBACK}:${users.port}`,
    NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
    // Every entry is counted in the end.
    NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '10000000',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '5s',
    ...Object.fromEntries(works.flatMap((work) => Object.entries(work.env))),
  };
  report(
    `Starting ${SERVICES} processes of the service (${mode}, payloads ${isEncrypted ? 'encrypted' : 'plain'})`,
  );
  const usual = {
    folder: ROOT,
    env: (service: number): Record<string, string> => ({
      ...env,
      ...keys.ofService(),
      ...Object.fromEntries(works.flatMap((work) => Object.entries(work.envOf?.(service) ?? {}))),
    }),
  };
  const services = Array.from({ length: SERVICES }, (_, index) =>
    superviseService({
      name: `service-${index + 1}`,
      program: { env: usual.env(index), folder: ROOT },
      dataDir: servers.dataDir,
    }),
  );
  onClose(() => Promise.all(services.map((service) => service.stop())));
  await Promise.all(services.map((service) => service.ready()));
  for (const work of works) await work.prepare?.();

  startedAt = Date.now();
  const plan = planFaults(random('faults'), {
    services: SERVICES,
    count: options.faults,
    withinMs: options.seconds * 1_000,
    losses: options.losses,
    kinds: options.kinds,
    isEncrypted,
    members: [...(servers.temporal.now().members?.keys() ?? [])],
  });
  report(`Load and ${plan.length} faults over ${options.seconds} s`);
  const networkOf = (server: Server) => ({
    proxy: server.proxy,
    target: () => ({ host: LOOPBACK, port: server.now().port }),
  });
  const injection = injectFaults(plan, {
    servers,
    services,
    networks: {
      redis: networkOf(servers.redis),
      postgres: networkOf(servers.postgres),
      temporal: networkOf(servers.temporal),
      'user-service': {
        proxy: users,
        target: () => ({ host: LOOPBACK, port: Number(new URL(userService.url).port) }),
      },
    },
    usual,
    async rotateKeys(restart) {
      keys.rotate();
      for (const service of services.keys()) await restart(service);
      await keys.renew(servers);
    },
    report,
    injected: faults,
  });
  await Promise.all([injection, ...works.map((work) => work.load())]);

  const loadedAt = Date.now();
  report(`All is published after ${seconds(loadedAt - startedAt)} s; waiting for it to be done`);
  userService.heal();
  await Promise.all(services.map((service) => service.ready()));
  // A call that the load gave up may still be carried out, and change what was judged to be done.
  await Promise.race([Promise.all(offered), sleep(STANDSTILL_LIMIT_MS)]);
  /** Why a kind of work did not come to an end; what arrived is judged all the same. */
  const unsettled = new Map<string, string>();
  for (const work of works) {
    await work.settle().catch((error: Error) => unsettled.set(work.name, error.message));
    const is = unsettled.has(work.name) ? 'not done' : 'done';
    report(`  ${work.name} is ${is} ${seconds(Date.now() - loadedAt)} s later`);
  }
  const settledAt = Date.now();
  report(`All is done ${seconds(settledAt - loadedAt)} s later; checking the ledger`);
  const verdicts: Record<string, Verdict> = {};
  for (const work of works) {
    const verdict = await work.verify();
    const reason = unsettled.get(work.name);
    if (reason !== undefined) verdict.wrong.push(reason);
    verdicts[work.name] = verdict;
  }

  const versions = await versionsOf(connections);
  const failedTasks: Record<string, number> = {};
  const leaked = await leaksOf({ servers, services, connections, planted, failedTasks });
  const crashes = services.flatMap((service) => service.crashes);
  const excusedShare =
    Math.max(0, ...Object.values(verdicts).map(({ excusedMs }) => excusedMs)) / (loadedAt - startedAt);
  return {
    date: new Date().toISOString(),
    machine: machineOf(),
    seed,
    command: commandOf(options),
    dispatch: mode,
    isEncrypted,
    seconds: (Date.now() - startedAt) / 1_000,
    settledAfterSeconds: (settledAt - Math.max(loadedAt, ...faults.map(({ endedAt }) => endedAt))) / 1_000,
    faults: faultRowsOf(faults, arrivals.at),
    works: verdicts,
    excusedShare,
    leaked,
    crashes,
    failedStarts: services.reduce((sum, service) => sum + service.failedStarts, 0),
    versions,
    failedTasks,
    isGood:
      leaked.length + crashes.length === 0 &&
      excusedShare <= MOST_EXCUSED &&
      Object.values(verdicts).every(isClean),
  };
}

/** Ends the service and Temporal, whose files are then read. */
async function leaksOf({
  servers,
  services,
  connections,
  planted,
  failedTasks,
}: {
  servers: Servers;
  services: readonly SupervisedService[];
  connections: Connections;
  planted: readonly Planted[];
  /** What was found on the way is added. */
  failedTasks: Record<string, number>;
}): Promise<string[]> {
  const search = { planted };
  const inRows = await marksInRows(connections.db, search);
  await Promise.all(services.map((service) => service.stop()));
  const inTemporal = await marksInTemporal(countingFailedTasks(servers.temporalRows(), failedTasks), search);
  const logs = Object.fromEntries(services.map((service, index) => [`service ${index + 1}`, service.log()]));
  return [...inRows, ...marksInLogs({ ...logs, 'the servers': servers.logs() }, search), ...inTemporal];
}

async function versionsOf({ redis, db, temporal }: Connections): Promise<Record<string, string>> {
  const [info, postgres, server] = await Promise.all([
    redis.info('server'),
    db.query<{ server_version: string }>('SHOW server_version'),
    temporal.workflowService.getSystemInfo({}),
  ]);
  const [, name, number] = /(valkey|redis)_version:(\S+)(?![^]*valkey_version)/.exec(info) ?? [];
  return {
    Temporal: server.serverVersion ?? 'unknown',
    PostgreSQL: postgres.rows[0]!.server_version.split(' ')[0]!,
    [name === 'valkey' ? 'Valkey' : 'Redis']: number ?? 'unknown',
  };
}

const seconds = (ms: number): string => (ms / 1_000).toFixed(1);

/** Indexes from 0, each when its time has come; what is late is made up for. */
async function* spread(
  count: number,
  { beganAt, overMs }: { beganAt: number; overMs: number },
): AsyncGenerator<number> {
  for (let index = 0; index < count; index += 1) {
    const waitMs = beganAt + (index * overMs) / count - Date.now();
    if (waitMs > 0) await sleep(waitMs);
    yield index;
  }
}

async function attempted<T>(what: string, call: () => Promise<T>, limitMs: number): Promise<T> {
  let deadline = Date.now() + limitMs;
  let last = '';
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const { message } = error as Error;
      // The message about what is left has changed: the work continues.
      if (message !== last) deadline = Date.now() + limitMs;
      last = message;
      if (Date.now() > deadline) {
        throw new Error(`waited ${limitMs / 1_000} s for ${what}: ${message}`, {
          cause: error,
        });
      }
      await sleep(POLL_MS);
    }
  }
}

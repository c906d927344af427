/** Alarms about processes, Temporal, secrets and keys, each with its fault, and its section of the runbook carried out. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { freePort } from '../../dev/servers/ports.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import { RECONCILIATION_WORKFLOW } from '../../workflows/recovery-contract.ts';
import { eventually, operatorOf } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { EMAIL, PUSH, countOf, routeIn } from '../intent/rows.ts';
import { drillGround } from '../runbook/drill.ts';
import { scratchFolder } from '../scratch.ts';
import type { ServiceProcess } from '../service-process.ts';
import { MAIL } from '../service-process.ts';

const BY = { requestedBy: 'drill' };

const scratch = scratchFolder('alarms');
const inDir = (name: string) => path.join(scratch.dir, name);

const ground = drillGround({
  env: () => ({ NOTIFICATION_ROLES: 'intent' }),
});
const { drill } = ground;
const restart = async (env?: Record<string, string>) => {
  await ground.killAll();
  return ground.start(env);
};
const publish = (key: string) => publishTurn(ground.slot.redis, key);
const steering = () => operatorOf(ground.slot);
const wait = (ms: number) => {
  const until = performance.now() + ms;
  return eventually(`${ms} ms to pass`, async () => performance.now() > until);
};

/** A transaction of another client. @returns ends it; may be called again. */
async function lock(table: string): Promise<() => Promise<void>> {
  const other = await ground.slot.db.connect();
  await other.query(`BEGIN; LOCK TABLE ${table}`);
  let isHeld = true;
  return async () => {
    if (!isHeld) return;
    isHeld = false;
    await other.query('ROLLBACK');
    other.release();
  };
}

beforeAll(() => ground.start(), 300_000);

drill({
  alarm: 'NotificationNobodyReports',
  fault: 'all processes died',
  inject: () => ground.killAll(),
  deeds: [{ words: 'look at the processes', act: () => ground.start() }],
});

drill({
  alarm: 'NotificationCollectorDown',
  fault: 'the collector is away',
  inject: () => ground.collector.stop(),
  deeds: [{ words: 'fix the collector', act: () => ground.collector.start() }],
});

describe('a start that waits', () => {
  let unlock: () => Promise<void> = async () => undefined;
  let starting: Promise<ServiceProcess> | undefined;
  let probing: NodeJS.Timeout | undefined;
  afterAll(async () => {
    clearInterval(probing);
    await unlock();
    await starting;
  });

  drill({
    alarm: 'NotificationNotReady',
    fault: 'a start waits for a table that a client has locked',
    inject: async () => {
      await ground.killAll();
      unlock = await lock('notification.schema_migrations');
      const port = await freePort();
      starting = ground.start({ NOTIFICATION_INTERNAL_HTTP_ADDR: `127.0.0.1:${port}` });
      starting.catch(() => undefined);
      // As the kubelet does.
      probing = setInterval(() => void fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined), 500);
    },
    deeds: [
      {
        words: 'end what it waits for',
        act: async () => {
          await unlock();
          await starting;
        },
      },
    ],
  });
});

describe('Temporal', () => {
  let patient: ServiceProcess | undefined;
  const waits = 'temporal_workflow_task_schedule_to_start_latency_milliseconds_count{task_queue="intent"}';
  const reconciliation = (name: string) =>
    [
      RECONCILIATION_WORKFLOW,
      { workflowId: `reconciliation-${name}`, taskQueue: INTENT_TASK_QUEUE },
    ] as const;
  drill({
    alarm: 'TemporalWorkersBusy',
    fault: 'a process stood still while workflows were started',
    prepare: async () => {
      await ground.killAll();
      await eventually('no process to report', async () => !(await ground.prometheus.isTrue(waits)));
      patient = await ground.start();
      // A rate is a difference: the first report of a process is not one, however long its tasks had waited.
      await ground.slot.client.workflow.execute(...reconciliation('first'));
      await eventually('a process to report', () => ground.prometheus.isTrue(waits));
    },
    inject: async () => {
      process.kill(patient!.pid, 'SIGSTOP');
      // The first go to polls that are under way, and count as taken immediately.
      for (let n = 0; n < 60; n += 1) await ground.slot.client.workflow.start(...reconciliation(String(n)));
      await wait(2_000);
      process.kill(patient!.pid, 'SIGCONT');
    },
    deeds: [{ words: 'add processes', act: () => ground.start() }],
  });

  drill({
    alarm: 'TemporalActivitiesWait',
    fault: 'a process stood still while many attempts were due',
    prepare: async () => {
      await ground.killAll();
      // Attempts after the first are activities.
      patient = await ground.start({
        NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '50',
        NOTIFICATION_ROUTE_BACKOFF_MIN: '500ms',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
      });
      await ground.slot.redis.set(MAIL, 'not a stream');
      for (let n = 0; n < 40; n += 1) await publish(`attempts-${n}`);
      const attempted = "channel = 'email' AND attempt_count > 1";
      await eventually('attempts', async () => (await countOf(ground.slot, 'routes', attempted)) >= 40);
    },
    inject: async () => {
      process.kill(patient!.pid, 'SIGSTOP');
      await wait(8_000);
      process.kill(patient!.pid, 'SIGCONT');
    },
    deeds: [{ words: 'add processes', act: () => ground.start() }],
    cleanUp: async () => {
      await ground.slot.redis.del(MAIL);
      await restart();
    },
  });

  let unlock: () => Promise<void> = async () => undefined;
  drill({
    alarm: 'TemporalSlotsUsedUp',
    fault: 'PostgreSQL is slow, and a process may do little at a time',
    prepare: () =>
      restart({
        NOTIFICATION_POSTGRES_MAX_OPEN_CONNS: '1',
        NOTIFICATION_POSTGRES_MAX_IDLE_CONNS: '1',
        NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '5m',
      }),
    inject: async () => {
      unlock = await lock('notification.records');
      for (let n = 0; n < 5; n += 1) await publish(`slots-${n}`);
    },
    deeds: [{ words: 'look at the failing or slow server first', act: () => unlock() }],
    cleanUp: async () => {
      await unlock();
      await restart();
    },
  });

  /** Sources of another release: those of the last commit, changed. */
  const other = inDir('release');
  let undone: string;
  drill({
    alarm: 'TemporalWorkflowTasksFail',
    fault: 'a release cannot follow the histories of the one before',
    prepare: async () => {
      await steering().channels.pause('email', BY);
      undone = await publish('undone');
      await routeIn(ground.slot, undone, PUSH, 'published');
      mkdirSync(other);
      const sources = execFileSync('git', ['archive', '--format=tar', 'HEAD'], { maxBuffer: 2 ** 30 });
      execFileSync('tar', ['-x', '-C', other], { input: sources });
      symlinkSync(path.resolve('node_modules'), path.join(other, 'node_modules'));
      const file = path.join(other, 'workflows/intent/workflow.ts');
      const source = readFileSync(file, 'utf8');
      const changed = source.replace(
        /(export async function notification\(.*\n)/,
        "$1  await wait(() => false, '1 ms');\n",
      );
      expect(changed).not.toBe(source);
      writeFileSync(file, `import { condition as wait } from '@temporalio/workflow';\n${changed}`);
    },
    inject: async () => {
      await ground.killAll();
      await ground.start({}, other);
      await steering().channels.resume('email', BY);
    },
    deeds: [{ words: 'roll back to the release before', act: () => restart() }],
    cleanUp: async () => {
      await restart();
      await routeIn(ground.slot, undone, EMAIL, 'published');
    },
  });

  let proxy: Awaited<ReturnType<typeof startTcpProxy>> | undefined;
  afterAll(() => proxy?.stop());
  drill({
    alarm: 'TemporalRequestsFail',
    fault: 'Temporal cannot be reached',
    prepare: async () => {
      const [host = '', port] = ground.slot.endpoints.temporalAddress!.split(':');
      proxy = await startTcpProxy({ host, port: Number(port) });
      await restart({ TEMPORAL_ADDRESS: `127.0.0.1:${proxy.port}` });
    },
    inject: async () => {
      await proxy!.set({ kind: 'refuse' });
      proxy!.cut();
    },
    deeds: [{ words: 'fix it', act: () => proxy!.set({ kind: 'open' }) }],
    cleanUp: () => restart(),
  });

  drill({
    alarm: 'RetentionFails',
    fault: 'another transaction holds a lock on the tables that are cleaned up',
    prepare: () => restart({ NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '1s' }),
    inject: async () => {
      unlock = await lock('notification.intents');
      await ground.slot.client.schedule.getHandle('intent-retention').trigger();
    },
    deeds: [{ words: 'end the transaction that is in the way', act: () => unlock() }],
    cleanUp: async () => {
      await unlock();
      await restart();
    },
  });
});

describe('certificates and secrets', () => {
  const caFile = inDir('ca.pem');
  const putCertificate = async (days?: number) => {
    const { certPem } = await createLoopbackCertificate(days);
    writeFileSync(caFile, certPem);
  };
  const env = { NOTIFICATION_HTTP_CA_FILE: caFile };
  beforeAll(async () => {
    await putCertificate();
    await restart(env);
  }, 120_000);

  for (const [alarm, days] of [
    ['CertificateExpiresSoon', 13],
    ['CertificateExpires', 1],
  ] as const)
    drill({
      alarm,
      fault: `a certificate expires in ${days === 1 ? 'a day' : `${days} days`}`,
      inject: () => putCertificate(days),
      env: () => env,
      says: { 'galaxy-notify doctor': /HTTP_CA_FILE/ },
      deeds: [
        {
          words: days === 1 ? 'as CertificateExpiresSoon, now' : 'put the new certificate',
          act: () => putCertificate(),
        },
      ],
    });
});

describe('keys', () => {
  const keysFile = inDir('keys');
  const [old, next, newest] = ['old', 'new', 'newest'].map(
    (id) => `${id}:${randomBytes(32).toString('base64')}`,
  );
  // The drills before have left workflows in plain.
  const env = { NOTIFICATION_PAYLOAD_KEYS_FILE: keysFile, NOTIFICATION_PAYLOAD_PLAIN: 'accept' };
  const putKeys = async (...keys: (string | undefined)[]) => writeFileSync(keysFile, keys.join());

  drill({
    alarm: 'SecretNotTaken',
    fault: 'something else than keys was mounted in their place',
    prepare: async () => {
      await putKeys(next, old);
      await restart(env);
    },
    inject: () => putKeys('nonsense'),
    // What the command line is given is not at fault here.
    env: () => ({}),
    deeds: [{ words: 'fix the file', act: () => putKeys(next, old) }],
    cleanUp: () => putKeys(next, old),
  });

  // Work that goes on by itself: a route is tried again every second, for as long as it takes.
  const retrying = {
    ...env,
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
  };
  let sealed: string;
  drill({
    alarm: 'KeyMissing',
    fault: 'a key was taken out too early',
    prepare: async () => {
      await putKeys(old, next, newest);
      await restart(retrying);
      await ground.slot.redis.set(MAIL, 'not a stream');
      sealed = await publish('sealed');
      await routeIn(ground.slot, sealed, EMAIL, 'failed');
    },
    inject: async () => {
      await ground.killAll();
      await putKeys(next, newest);
      await ground.start(retrying);
    },
    env: () => env,
    codes: { 'galaxy-notify keys status': 1 },
    says: { 'galaxy-notify keys status': /old/ },
    deeds: [{ words: 'put the key back behind the first one', act: () => putKeys(next, old, newest) }],
    cleanUp: async () => {
      await putKeys(next, old, newest);
      await ground.slot.redis.del(MAIL);
      // The longer its tasks have failed, the later the next one.
      await routeIn(ground.slot, sealed, EMAIL, 'published', 280_000);
    },
  });
});

/** Alarms about processes, Temporal, secrets and keys, each with its fault, and its section of the runbook carried out. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import proto from '@temporalio/proto';
import { freePort } from '../../dev/servers/ports.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { INTENT_TASK_QUEUE, RECONCILIATION_WORKFLOW } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import { eventually, operatorOf } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import type { Held } from '../open-work.ts';
import { holdLocks } from '../open-work.ts';
import { drillGround } from '../runbook/drill.ts';
import type { ServiceProcess } from '../service-process.ts';
import type { UnpackedRelease } from './release.ts';
import { unpackRelease } from './release.ts';

const { PendingActivityState } = proto.temporal.api.enums.v1;
const BY = { requestedBy: 'drill' };
const BRIDGE = bridgeWorkflowId('notification:intents');

const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-alarms-'));
const inDir = (name: string) => path.join(dir, name);
afterAll(() => rmSync(dir, { recursive: true }));

const ground = drillGround({
  env: () => ({ NOTIFICATION_ROLES: 'intent', NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '500ms' }),
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
const tracked = (key: string) =>
  eventually(`${key} to be delivered`, async () => {
    const { rowCount } = await ground.slot.db.query(
      "SELECT FROM notification.routes WHERE status = 'published' AND channel = 'email' AND notification_id IN (SELECT notification_id FROM notification.records WHERE idempotency_key = $1)",
      [key],
    );
    return rowCount === 1;
  });

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
  deeds: [{ words: 'mend the collector', act: () => ground.collector.start() }],
});

describe('a start that waits', () => {
  let held: Held | undefined;
  let starting: Promise<ServiceProcess> | undefined;
  let probing: NodeJS.Timeout | undefined;
  afterAll(async () => {
    clearInterval(probing);
    await held?.release();
    await starting;
  });

  drill({
    alarm: 'NotificationNotReady',
    fault: 'a start waits for a table that somebody has locked',
    inject: async () => {
      await ground.killAll();
      held = await holdLocks(ground.slot, 'LOCK TABLE notification.schema_migrations');
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
          await held!.release();
          await starting;
        },
      },
    ],
  });
});

describe('Temporal', () => {
  drill({
    alarm: 'TemporalWorkersBusy',
    fault: 'workflows were started while no process was there',
    inject: async () => {
      await ground.killAll();
      for (let n = 0; n < 5; n += 1)
        await ground.slot.client.workflow.start(RECONCILIATION_WORKFLOW, {
          workflowId: `reconciliation-${n}`,
          taskQueue: INTENT_TASK_QUEUE,
        });
      await wait(2_000);
      await ground.start();
    },
    deeds: [{ words: 'add processes', act: () => ground.start() }],
  });

  drill({
    alarm: 'TemporalActivitiesWait',
    fault: 'an activity was to go on while no process was there',
    prepare: () => restart(),
    inject: async () => {
      await ground.killAll();
      const bridge = ground.slot.client.workflow.getHandle(BRIDGE);
      await eventually('the reader to be scheduled again', async () => {
        const { raw } = await bridge.describe();
        const [pending] = raw.pendingActivities ?? [];
        return pending?.state === PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED;
      });
      await wait(6_000);
      await ground.start();
    },
    deeds: [{ words: 'add processes', act: () => ground.start() }],
  });

  let held: Held | undefined;
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
      held = await holdLocks(ground.slot, 'LOCK TABLE notification.records');
      for (let n = 0; n < 5; n += 1) await publish(`slots-${n}`);
    },
    deeds: [{ words: 'look at the failing or slow server first', act: () => held!.release() }],
    cleanUp: async () => {
      await held?.release();
      await restart();
    },
  });

  let other: UnpackedRelease | undefined;
  afterAll(() => other?.remove());
  drill({
    alarm: 'TemporalWorkflowTasksFail',
    fault: 'a release cannot follow the histories of the one before',
    prepare: async () => {
      await steering().channels.pause('email', BY);
      const id = await publish('undone');
      await eventually('its routes', async () => {
        const { rowCount } = await ground.slot.db.query(
          "SELECT FROM notification.routes WHERE notification_id = $1 AND channel = 'push' AND status = 'published'",
          [id],
        );
        return rowCount === 1;
      });
      other = unpackRelease('HEAD');
      const file = path.join(other.folder, 'workflows/intent/workflow.ts');
      const source = readFileSync(file, 'utf8');
      const changed = source.replace(
        /(export async function notification\(.*\n)/,
        "$1  await condition(() => false, '1 ms');\n",
      );
      expect(changed).not.toBe(source);
      writeFileSync(file, changed);
    },
    inject: async () => {
      await ground.killAll();
      await ground.start({}, other!.folder);
      await steering().channels.resume('email', BY);
    },
    deeds: [{ words: 'roll back to the release before', act: () => restart() }],
    cleanUp: async () => {
      await restart();
      await tracked('undone');
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
    deeds: [{ words: 'mend it', act: () => proxy!.set({ kind: 'open' }) }],
    cleanUp: () => restart(),
  });

  drill({
    alarm: 'RetentionFails',
    fault: 'another transaction holds a lock on the tables that are cleaned up',
    inject: async () => {
      held = await holdLocks(ground.slot, 'LOCK TABLE notification.duplicates');
      await ground.slot.client.schedule.getHandle('intent-retention').trigger();
    },
    deeds: [{ words: 'end the transaction that is in the way', act: () => held!.release() }],
    cleanUp: async () => held?.release(),
  });
});

describe('certificates and secrets', () => {
  const caFile = inDir('ca.pem');
  const putCertificate = async (days?: number) => {
    const { certPem } = await createLoopbackCertificate(days);
    writeFileSync(caFile, certPem);
  };
  const env = { NOTIFICATION_USER_SERVICE_CA_FILE: caFile };
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
      says: { 'galaxy-notify doctor': /USER_SERVICE_CA_FILE/ },
      deeds: [
        {
          words: days === 1 ? 'as CertificateExpiresSoon, now' : 'put the new certificate',
          act: () => putCertificate(),
        },
      ],
    });

  drill({
    alarm: 'SecretNotTaken',
    fault: 'half of a certificate was mounted',
    inject: async () => writeFileSync(caFile, '-----BEGIN CERTIFICATE-----\nMII'),
    env: () => env,
    deeds: [{ words: 'mend the file', act: () => putCertificate() }],
  });
});

describe('keys', () => {
  const keysFile = inDir('keys');
  const [old, next] = ['old', 'new'].map((id) => `${id}:${randomBytes(32).toString('base64')}`);
  const env = { NOTIFICATION_PAYLOAD_KEYS_FILE: keysFile };
  const putKeys = async (...keys: (string | undefined)[]) => writeFileSync(keysFile, keys.join());

  drill({
    alarm: 'KeyMissing',
    fault: 'a key was taken out too early',
    prepare: async () => {
      await putKeys(old);
      await restart(env);
      await steering().channels.pause('email', BY);
      await publish('sealed');
      await eventually('it to be accepted', async () => {
        const { rowCount } = await ground.slot.db.query(
          "SELECT FROM notification.records WHERE idempotency_key = 'sealed'",
        );
        return rowCount === 1;
      });
    },
    inject: async () => {
      await ground.killAll();
      await putKeys(next);
      await ground.start(env);
      await steering().channels.resume('email', BY);
    },
    env: () => env,
    codes: { 'galaxy-notify keys status': 1 },
    says: { 'galaxy-notify keys status': /old/ },
    deeds: [{ words: 'put the key back behind the first one', act: () => putKeys(next, old) }],
    cleanUp: async () => {
      await putKeys(next, old);
      await tracked('sealed');
    },
  });

  drill({
    alarm: 'KeyWornOut',
    fault: 'a key has sealed for too long',
    prepare: () => restart(env),
    inject: async () => {
      await eventually('seals', async () => {
        const { rowCount } = await ground.slot.db.query(
          `UPDATE notification.key_seals SET seals = 2 ^ 31 + 1
            WHERE last_sealed_at = (SELECT max(last_sealed_at) FROM notification.key_seals)`,
        );
        return (rowCount ?? 0) > 0;
      });
    },
    env: () => env,
    deeds: [
      {
        words: 'put a new key first',
        before: 'galaxy-notify keys renew',
        act: () => putKeys(`newest:${randomBytes(32).toString('base64')}`, next, old),
      },
    ],
  });
});

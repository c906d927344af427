/** Every secret and certificate is rotated while one process works, which is never restarted. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { ofTests } from '../of-tests.ts';
import { scratchFolder } from '../scratch.ts';
import type { ServiceProcess } from '../service-process.ts';
import { GATEWAY, MAIL, deliveriesTo, fleetOfTests, outboundIds } from '../service-process.ts';
import type { Identities } from './rotating-servers.ts';
import { mountedSecret, rotatingPostgres, rotatingRedis, rotatingTemporal } from './rotating-servers.ts';

/** A new secret must be in use after this. */
const LIMIT_MS = 60_000;
/** What was published must be delivered after this, however slow the machine is. */
const DELIVERED_MS = 180_000;
jest.setTimeout(400_000);
const PUBLISH_EVERY_MS = 500;
/** Entries that are still to come before no more is published: a slow machine would fall behind for good. */
const MOST_WAITING = 20;

const identities = async (): Promise<Identities> => ({
  server: await createLoopbackCertificate(),
  client: await createLoopbackCertificate(),
});
const certificateFiles = (prefix: string, { server, client }: Identities) => ({
  [`${prefix}-ca.pem`]: server.certPem,
  [`${prefix}-cert.pem`]: client.certPem,
  [`${prefix}-key.pem`]: client.keyPem,
});
const newKey = (id: string) => `${id}:${randomBytes(32).toString('base64')}`;
const [OLD, NEW] = [newKey('old'), newKey('new')];

let load: ReturnType<typeof startLoad>;
// Before what it needs ends: hooks run in their order.
afterAll(() => void load.stop());
const slot = slotOfTests();
const { dir: dataDir } = scratchFolder('rotation');
const secret = mountedSecret(path.join(dataDir, 'secret'));
const first = ofTests(async () => ({
  redis: await identities(),
  postgres: await identities(),
  temporal: await identities(),
}));
const stop = (one: { stop(): unknown }) => one.stop();
const redis = ofTests(() => rotatingRedis(dataDir, first.redis, 'redis-first'), stop);
const postgres = ofTests(() => rotatingPostgres(dataDir, first.postgres, 'postgres-first'), stop);
const temporal = ofTests(() => rotatingTemporal(slot.endpoints.temporalAddress!, first.temporal), stop);
const fleet = fleetOfTests(() => slot);
let service: ServiceProcess;

beforeAll(async () => {
  secret.write({
    ...certificateFiles('redis', first.redis),
    ...certificateFiles('pg', first.postgres),
    ...certificateFiles('temporal', first.temporal),
    'redis-password': 'redis-first',
    dsn: postgres.dsn('postgres-first', secret.path),
    'payload-keys': OLD,
  });
  service = await fleet.start({
    NOTIFICATION_REDIS_MASTER_ADDR: `rediss://127.0.0.1:${redis.port}`,
    NOTIFICATION_REDIS_DB: '0',
    NOTIFICATION_REDIS_PASSWORD_FILE: secret.path('redis-password'),
    NOTIFICATION_REDIS_CA_FILE: secret.path('redis-ca.pem'),
    NOTIFICATION_REDIS_CERT_FILE: secret.path('redis-cert.pem'),
    NOTIFICATION_REDIS_KEY_FILE: secret.path('redis-key.pem'),
    NOTIFICATION_POSTGRES_PRIMARY_DSN: '',
    NOTIFICATION_POSTGRES_PRIMARY_DSN_FILE: secret.path('dsn'),
    TEMPORAL_ADDRESS: `127.0.0.1:${temporal.port}`,
    TEMPORAL_TLS: 'true',
    TEMPORAL_TLS_SERVER_CA_CERT_PATH: secret.path('temporal-ca.pem'),
    TEMPORAL_TLS_SERVER_NAME: 'localhost',
    TEMPORAL_TLS_CLIENT_CERT_PATH: secret.path('temporal-cert.pem'),
    TEMPORAL_TLS_CLIENT_KEY_PATH: secret.path('temporal-key.pem'),
    NOTIFICATION_PAYLOAD_KEYS_FILE: secret.path('payload-keys'),
  });
  load = startLoad();
});

/** Publishes until it is stopped, at the pace of the service. */
function startLoad() {
  const waiting = async () =>
    2 * ids.length - (await redis.admin.xlen(GATEWAY)) - (await redis.admin.xlen(MAIL));
  const ids: string[] = [];
  let isRunning = true;
  const done = (async () => {
    for (let n = 0; isRunning; n += 1) {
      if ((await waiting()) < MOST_WAITING) ids.push(await publishTurn(redis.admin, `turn-${n}`));
      await sleep(PUBLISH_EVERY_MS);
    }
  })();
  return { ids, stop: () => (isRunning = false), done };
}

const said = (msg: string, since: number) =>
  eventually(msg, async () => service.lines.slice(since).find((line) => line.msg.startsWith(msg)), LIMIT_MS);

/** Changes something at a server and in the files, and waits until the part says that it uses what is new. */
async function rotate(part: string, change: () => Promise<unknown> | void): Promise<void> {
  const since = service.lines.length;
  await change();
  await said(`${part} uses the new values of its files`, since);
}

/** What is published from now on arrives. */
async function goesOn(): Promise<void> {
  const last = await publishTurn(redis.admin, randomBytes(8).toString('hex'));
  load.ids.push(last);
  await eventually(
    'a new intent to arrive',
    async () => (await outboundIds(redis.admin)).some((id) => id.startsWith(`${last}/`)),
    DELIVERED_MS,
    250,
  );
}

test.each<[string, (next: Identities) => Promise<unknown>, () => Promise<number[]>]>([
  [
    'Redis',
    async (next) => {
      await redis.rotate(next, 'redis-second');
      secret.write({ ...certificateFiles('redis', next), 'redis-password': 'redis-second' });
    },
    () => redis.ages(),
  ],
  [
    'PostgreSQL',
    async (next) => {
      await postgres.rotate(next, 'postgres-second');
      secret.write({ ...certificateFiles('pg', next), dsn: postgres.dsn('postgres-second', secret.path) });
    },
    () => postgres.ages(),
  ],
])(
  'I60 security-19 password, authority and certificates of %s are rotated under load',
  async (part, change, ages) => {
    const next = await identities();
    const beganAt = performance.now();
    await rotate(part, () => change(next));
    await eventually(
      'every connection to be newer',
      async () => {
        const found = await ages();
        // Redis rounds to seconds.
        return found.length > 0 && Math.max(...found) <= (performance.now() - beganAt) / 1_000 + 1;
      },
      LIMIT_MS,
    );
    if (part === 'Redis')
      // A client that is connected with the former secret has to come again.
      await redis.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await goesOn();
  },
);

test('I60 security-19 authority and certificates of Temporal are rotated under load', async () => {
  const next = await identities();
  const since = service.lines.length;
  // Files first: what the server does not accept yet is not used.
  secret.write(certificateFiles('temporal', next));
  const refusal = await said('Temporal keeps the old values of its files', since);
  expect(refusal).toMatchObject({ level: 'error' });
  expect(refusal['variables']).toContain('TEMPORAL_TLS_CLIENT_KEY_PATH');
  await goesOn();
  await rotate('Temporal', () => temporal.rotate(next));
  temporal.hangUp();
  await goesOn();
});

test('I60 keys of payloads are rotated under load', async () => {
  await rotate('encryption of payloads', () => secret.write({ 'payload-keys': [NEW, OLD].join() }));
  await goesOn();
  expect(service.lines.filter((line) => 'key_id' in line)).toEqual([]);
});

test('I60 security-19 a file that is broken changes nothing, and is named', async () => {
  const since = service.lines.length;
  secret.write({ 'redis-ca.pem': 'scribble', dsn: 'mysql://u:s3cret@db/x' });
  for (const [part, variable] of [
    ['Redis', 'NOTIFICATION_REDIS_CA_FILE'],
    ['PostgreSQL', 'NOTIFICATION_POSTGRES_PRIMARY_DSN_FILE'],
  ]) {
    const line = await said(`${part} keeps the old values of its files`, since);
    expect(line).toMatchObject({ level: 'error', variables: [variable] });
  }
  expect(JSON.stringify(service.lines)).not.toMatch(
    /s3cret|scribble|redis-first|redis-second|postgres-second/,
  );
  await goesOn();
  // Who needs no other value is not kept from its own.
  await rotate('encryption of payloads', () =>
    secret.write({ 'payload-keys': [newKey('newest'), NEW, OLD].join() }),
  );
});

test('I60 security-19 the process is the same, and each intent was delivered once', async () => {
  load.stop();
  await load.done;
  expect(service.isRunning()).toBe(true);
  expect(load.ids.length).toBeGreaterThan(20);
  const expected = deliveriesTo('user-1', load.ids);
  await eventually(
    'all deliveries',
    async () => (await outboundIds(redis.admin)).length >= expected.length,
    DELIVERED_MS,
    250,
  );
  expect(await outboundIds(redis.admin)).toEqual(expected);
});

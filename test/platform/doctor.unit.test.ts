/** Checks of `doctor`: each is bounded, and spoils no other; a Redis Cluster is refused; certificates expire. */
import { createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { generate } from 'selfsigned';
import { diagnose, ok, redisChecks } from '../../cli/checks.ts';
import { expiryOf } from '../../cli/doctor.ts';
import { openSession } from '../../cli/session.ts';
import { certificateExpiries } from '../../config/files.ts';
import { loadOperatorConfig } from '../../config/load.ts';
import { listen } from '../../dev/servers/ports.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { refuseCluster } from '../../workers/redis.ts';

const DAY_MS = 86_400_000;
const NOW = Date.parse('2026-11-23T12:00:00Z');

test('I40 a check has its own time where it needs more than others', async () => {
  const late = () => pause(100, ok('late'));
  const found = await diagnose(
    [[['server', () => ok('there')]], [['usual', late]], [['patient', late, 10_000]]],
    20,
  );
  expect(found).toMatchObject([
    { name: 'server', status: 'ok', detail: 'there' },
    { name: 'usual', status: 'error', detail: 'no answer within 0.02 s' },
    { name: 'patient', status: 'ok', detail: 'late' },
  ]);
});

test('I40 a server that accepts connections and does not answer is named with its address and variable', async () => {
  const silent = createServer();
  const address = `127.0.0.1:${await listen(silent)}`;
  const env = {
    ...{ NOTIFICATION_REDIS_MASTER_ADDR: address, TEMPORAL_ADDRESS: address },
    NOTIFICATION_POSTGRES_PRIMARY_DSN: `postgres://user@${address}/db`,
  };
  const session = openSession(loadOperatorConfig(env), 50);
  await expect(session.reach('redis')).rejects.toThrow(
    `cannot reach Redis at ${address} (NOTIFICATION_REDIS_MASTER_ADDR): no answer within 0.05 s`,
  );
  await session.close();
  silent.close();
});

/** What Redis answers to INFO. */
const answering = (info: string) =>
  ({
    info: () => Promise.resolve(`redis_version:7.2.0\r\nrole:master\r\n${info}`),
    ping: () => Promise.resolve('PONG'),
  }) as unknown as Redis;
const redisFindings = (info: string) => diagnose([redisChecks(answering(info), () => Promise.resolve(), 0)]);

test('intent-14 a Redis Cluster, whose scripts have keys of one slot, is refused at the start and by doctor', async () => {
  const cluster = 'cluster_enabled:1\r\n';
  await expect(refuseCluster(answering(cluster))).rejects.toThrow(/Redis Cluster.*use a single master/);
  await expect(refuseCluster(answering('cluster_enabled:0\r\n'))).resolves.toBeUndefined();
  expect(JSON.stringify(await redisFindings(cluster))).toMatch(/Redis Cluster/);
});

test('I40 doctor says that Redis is nearly full', async () => {
  const found = await redisFindings('maxmemory_policy:noeviction\r\nmaxmemory:100\r\nused_memory:91\r\n');
  expect(found.find(({ status }) => status === 'warn')?.detail).toContain('91 % of maxmemory');
});

async function certificate(days: number, ca: boolean): Promise<string> {
  const { cert } = await generate([{ name: 'commonName', value: 'x' }], {
    keyType: 'ec',
    notBeforeDate: new Date(NOW - 100 * DAY_MS),
    notAfterDate: new Date(NOW + days * DAY_MS),
    extensions: [{ name: 'basicConstraints', cA: ca, critical: true }],
  });
  return cert;
}

const daysLeft = (text: string | undefined) =>
  certificateExpiries([{ variable: 'V', path: '/v', text }]).map((one) => (one.expiresAt - NOW) / DAY_MS);

test('I61 security-19 a chain is good as long as all of it is, authorities as long as one of them is', async () => {
  const [leaf, otherLeaf] = [await certificate(10, false), await certificate(30, false)];
  const [authority, nextAuthority] = [await certificate(5, true), await certificate(1_000, true)];
  expect(daysLeft(leaf)).toEqual([10]);
  expect(daysLeft(otherLeaf + leaf)).toEqual([10]);
  expect(daysLeft(leaf + authority)).toEqual([5]);
  expect(daysLeft(authority + nextAuthority)).toEqual([1_000]);
});

test('I61 security-19 what holds no certificate has no expiry', async () => {
  const { keyPem } = await createLoopbackCertificate();
  const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----';
  expect([undefined, '', 's3cret', keyPem, broken].flatMap(daysLeft)).toEqual([]);
});

test.each([
  [15, 'ok', /^expires in 15 d, 2026-12-08T12:00:00.000Z: \/etc\/ca.pem$/],
  [13, 'warn', /^expires in 13 d/],
  [0.5, 'warn', /^expires in 12 h/],
  [-3, 'error', /^expired 3 d ago, 2026-11-20/],
])('I61 security-19 with %d days left, doctor says %s', (days, status, detail) => {
  const file = { variable: 'NOTIFICATION_REDIS_CA_FILE', path: '/etc/ca.pem' };
  const found = expiryOf({ ...file, expiresAt: NOW + days * DAY_MS }, NOW);
  expect(found).toMatchObject({ status, detail: expect.stringMatching(detail) });
  if (status !== 'ok') expect(found.hint).toContain('/etc/ca.pem, which NOTIFICATION_REDIS_CA_FILE names');
});

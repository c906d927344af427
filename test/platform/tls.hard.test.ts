/** Connections that are encrypted and whose other end is checked: Redis, PostgreSQL, Temporal, each a real server. */
import { chownSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TLSSocket } from 'node:tls';
import { createServer } from 'node:tls';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { freePort } from '../../dev/servers/ports.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { provideEndpoints } from '../../workers/embedded.ts';
import { createLogger } from '../../workers/logger.ts';
import { startService } from '../../workers/service.ts';
import { problemsIn } from './config-problems.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';

const ignore = () => undefined;
const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-tls-'));
const authority = path.join(dataDir, 'authority.pem');
const wrongAuthority = path.join(dataDir, 'stranger.pem');
let serverSide: LoopbackCertificate;
let clientSide: LoopbackCertificate;

/** What ends with this file. */
const cleanups: (() => unknown)[] = [() => rmSync(dataDir, { recursive: true, force: true })];
let slot: Slot;
let env: Record<string, string>;
let redis: Redis;

beforeAll(async () => {
  serverSide = await createLoopbackCertificate();
  clientSide = await createLoopbackCertificate();
  file('authority.pem', serverSide.certPem);
  file('stranger.pem', (await createLoopbackCertificate()).certPem);
  const { cert, key } = pair('client', clientSide);
  slot = await takeSlot();
  cleanups.push(() => slot.release());
  const [redisPort, postgresDsn, temporalPort] = await Promise.all([
    redisWithTls(),
    postgresWithTls(),
    temporalWithTls(),
  ]);
  env = {
    NOTIFICATION_REDIS_MASTER_ADDR: `rediss://127.0.0.1:${redisPort}`,
    NOTIFICATION_REDIS_CA_FILE: authority,
    NOTIFICATION_REDIS_CERT_FILE: cert,
    NOTIFICATION_REDIS_KEY_FILE: key,
    NOTIFICATION_REDIS_DB: '0',
    NOTIFICATION_POSTGRES_PRIMARY_DSN: `${postgresDsn}?sslmode=verify-full&sslrootcert=${authority}`,
    NOTIFICATION_USER_SERVICE_BASE_URL: slot.userService.url,
    TEMPORAL_ADDRESS: `127.0.0.1:${temporalPort}`,
    TEMPORAL_TLS: 'true',
    TEMPORAL_TLS_SERVER_CA_CERT_PATH: authority,
    TEMPORAL_TLS_SERVER_NAME: 'localhost',
    TEMPORAL_TLS_CLIENT_CERT_PATH: cert,
    TEMPORAL_TLS_CLIENT_KEY_PATH: key,
  };
});
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

test('I30 an intent is delivered with TLS on every connection, and certificates of ours where they are asked for', async () => {
  const service = await start();
  const id = await publishIntent(
    redis,
    newGameTurnReady({
      idempotencyKey: 'tls',
      occurredAt: Date.now(),
      recipientUserIds: ['user-1'],
      payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
    }),
  );
  await eventually('both entries', async () => {
    const lengths = [await redis.xlen('gateway:client-events'), await redis.xlen('mail:delivery_commands')];
    return lengths.every((length) => length === 1);
  });
  expect(id).toMatch(/^\d+-\d+$/);

  const admin = new pg.Client({ connectionString: env['NOTIFICATION_POSTGRES_PRIMARY_DSN'] });
  await admin.connect();
  const { rows } = await admin.query<{ ssl: boolean }>(
    `SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'galaxy-notify' AND datname = current_database()`,
  );
  await admin.end();
  expect(rows).toEqual([{ ssl: true }]);
  await service.stop();
});

test.each([
  [
    'Redis',
    { NOTIFICATION_REDIS_CA_FILE: wrongAuthority },
    /cannot reach Redis at .*self-signed certificate/,
  ],
  ['Redis', { NOTIFICATION_REDIS_CERT_FILE: '', NOTIFICATION_REDIS_KEY_FILE: '' }, /cannot reach Redis at /],
  [
    'PostgreSQL',
    { NOTIFICATION_POSTGRES_PRIMARY_DSN: wrongAuthority },
    /cannot reach PostgreSQL at .*self-signed certificate/,
  ],
  ['Temporal', { TEMPORAL_TLS_SERVER_CA_CERT_PATH: wrongAuthority }, /cannot reach Temporal at /],
  ['Temporal', { TEMPORAL_TLS_SERVER_NAME: 'elsewhere' }, /cannot reach Temporal at /],
])(
  'I30 I32 a %s that is not trusted, or does not trust us, stops the start: %j',
  async (_, change, message) => {
    const { NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn } = change as Record<string, string>;
    const changed = dsn
      ? {
          NOTIFICATION_POSTGRES_PRIMARY_DSN: env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!.replace(
            authority,
            dsn,
          ),
        }
      : (change as Record<string, string>);
    await expect(start(changed)).rejects.toThrow(message);
  },
);

test('I30 files for TLS without TLS, half a pair, and files that are none are refused', () => {
  const refused = (change: Record<string, string>) =>
    problemsIn(() => slot.config({ ...env, ...change })).join('\n');
  expect(refused({ NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:6379' })).toMatch(
    /NOTIFICATION_REDIS_MASTER_ADDR must be rediss:/,
  );
  expect(refused({ NOTIFICATION_REDIS_KEY_FILE: '' })).toMatch(/belong together/);
  expect(refused({ NOTIFICATION_REDIS_CA_FILE: path.join(dataDir, 'none.pem') })).toMatch(
    /NOTIFICATION_REDIS_CA_FILE cannot be read: ENOENT/,
  );
  expect(refused({ NOTIFICATION_REDIS_CA_FILE: import.meta.filename })).toMatch(/must name a PEM file/);
  expect(refused({ NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis' })).toMatch(
    /must be host:port, or rediss:/,
  );
});

/** As `npm start` does it: everything from the environment. */
async function start(change: Record<string, string> = {}) {
  const config = slot.config({ ...env, ...change });
  const { endpoints } = await provideEndpoints(config, ignore);
  const service = await startService({ config, endpoints, log: createLogger('warn', { write: ignore }) });
  cleanups.push(() => service.stop());
  return service;
}

async function redisWithTls(): Promise<number> {
  const { addr, stop } = await startRedis({ dataDir, port: 0, durable: false, report: ignore });
  cleanups.push(stop);
  redis = new Redis(Number(addr.split(':')[1]));
  cleanups.push(() => redis.disconnect());
  const files = pair('redis', serverSide);
  const port = await freePort();
  await redis.config('SET', 'tls-ca-cert-file', file('clients.pem', clientSide.certPem));
  // One call: each alone would not fit the other.
  await redis.call('CONFIG', 'SET', 'tls-cert-file', files.cert, 'tls-key-file', files.key, 'tls-port', port);
  return port;
}

/** The PostgreSQL of this run, to which everybody else goes on without TLS. */
async function postgresWithTls(): Promise<string> {
  const { username, host, pathname } = new URL(slot.endpoints.postgresDsn);
  const { rows } = await slot.db.query<{ folder: string }>(
    `SELECT current_setting('data_directory') AS folder`,
  );
  const { uid, gid } = statSync(rows[0]!.folder);
  const files = pair('postgres', serverSide, rows[0]!.folder);
  for (const name of Object.values(files)) chownSync(name, uid, gid);
  await slot.db.query(`ALTER SYSTEM SET ssl_cert_file = '${files.cert}'`);
  await slot.db.query(`ALTER SYSTEM SET ssl_key_file = '${files.key}'`);
  await slot.db.query('ALTER SYSTEM SET ssl = on');
  await slot.db.query('SELECT pg_reload_conf()');
  const dsn = `postgres://${username}@${host}${pathname}`;
  await eventually('PostgreSQL to speak TLS', async () => {
    const client = new pg.Client({
      connectionString: `${dsn}?sslmode=verify-full&sslrootcert=${authority}`,
    });
    await client.connect();
    await client.end();
    return true;
  });
  return dsn;
}

/** In front of the Temporal of this run, as a load balancer would do it; it asks for a certificate. */
async function temporalWithTls(): Promise<number> {
  const [host = '', port] = slot.endpoints.temporalAddress!.split(':');
  const sockets = new Set<TLSSocket>();
  const server = createServer(
    {
      cert: serverSide.certPem,
      key: serverSide.keyPem,
      ca: clientSide.certPem,
      requestCert: true,
      rejectUnauthorized: true,
      ALPNProtocols: ['h2'],
    },
    (socket) => {
      const upstream = connect(Number(port), host);
      sockets.add(socket);
      socket.on('error', ignore).on('close', () => upstream.destroy());
      upstream.on('error', ignore).on('close', () => socket.destroy());
      socket.pipe(upstream).pipe(socket);
    },
  );
  server.on('tlsClientError', ignore);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

function file(name: string, content: string, folder = dataDir): string {
  const named = path.join(folder, name);
  writeFileSync(named, content, { mode: 0o600 });
  return named;
}

function pair(name: string, { certPem, keyPem }: LoopbackCertificate, folder = dataDir) {
  return {
    cert: file(`${name}-cert.pem`, certPem, folder),
    key: file(`${name}-key.pem`, keyPem, folder),
  };
}

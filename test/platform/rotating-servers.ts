/** Servers of one test, each with TLS and a password, whose secrets are rotated while the service runs. */
import { randomUUID } from 'node:crypto';
import {
  chownSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import type { TLSSocket } from 'node:tls';
import { createServer } from 'node:tls';
import { Redis } from 'ioredis';
import pg from 'pg';
import { freePort, listen } from '../../dev/servers/ports.ts';
import { startPostgres } from '../../dev/servers/postgres.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { eventually } from '../eventually.ts';

const ignore = () => undefined;

/** Both ends of connections to a server: each has a certificate, which is its own authority. */
export interface Identities {
  server: LoopbackCertificate;
  client: LoopbackCertificate;
}

/** A folder as Kubernetes mounts a Secret: files are links through one link, which is exchanged. */
export function mountedSecret(folder: string) {
  let version = 0;
  const contents: Record<string, string> = {};
  mkdirSync(folder, { recursive: true });
  return {
    path: (name: string) => path.join(folder, name),

    /** Replaces some of the files, all of them in one step. */
    write(changes: Record<string, string>): void {
      const added = Object.keys(changes).filter((name) => !(name in contents));
      Object.assign(contents, changes);
      version += 1;
      mkdirSync(path.join(folder, `..v${version}`));
      for (const [name, text] of Object.entries(contents)) {
        writeFileSync(path.join(folder, `..v${version}`, name), text);
      }
      symlinkSync(`..v${version}`, path.join(folder, '..next'));
      renameSync(path.join(folder, '..next'), path.join(folder, '..data'));
      for (const name of added) symlinkSync(path.join('..data', name), path.join(folder, name));
    },
  };
}

/** What a server shows and what it trusts, in files of the owner of the folder. */
function writePems(folder: string, { server, client }: Identities) {
  const { uid, gid } = statSync(folder);
  const write = (text: string) => {
    const file = path.join(folder, `${randomUUID()}.pem`);
    writeFileSync(file, text, { mode: 0o600 });
    chownSync(file, uid, gid);
    return file;
  };
  return { cert: write(server.certPem), key: write(server.keyPem), clients: write(client.certPem) };
}

export async function rotatingRedis(dataDir: string, first: Identities, password: string) {
  const started = await startRedis({ dataDir, port: 0, durable: false, report: ignore });
  const admin = new Redis(Number(started.addr.split(':')[1]));
  await admin.ping();
  const port = await freePort();
  await rotate(first, password);
  await admin.config('SET', 'tls-port', port);
  return {
    port,
    /** Is authenticated, and stays so. */
    admin,
    rotate,
    /** Seconds since each connection with TLS was opened. */
    async ages(): Promise<number[]> {
      const lines = String(await admin.client('LIST')).split('\n');
      const own = lines.filter((line) => line.includes(`laddr=127.0.0.1:${port} `));
      return own.map((line) => Number(/ age=(\d+)/.exec(line)![1]));
    },
    async stop() {
      admin.disconnect();
      await started.stop();
    },
  };

  async function rotate(identities: Identities, newPassword: string): Promise<void> {
    const { cert, key, clients } = writePems(dataDir, identities);
    // One call: each alone would not fit the other.
    const own = ['tls-cert-file', cert, 'tls-key-file', key, 'tls-ca-cert-file', clients];
    await admin.call('CONFIG', 'SET', ...own, 'requirepass', newPassword);
  }
}

const ROLE = 'rotated';

export async function rotatingPostgres(dataDir: string, first: Identities, password: string) {
  const started = await startPostgres({ dataDir, port: 0, durable: false, report: ignore });
  const admin = new pg.Pool({ connectionString: started.dsn, max: 2 });
  admin.on('error', ignore);
  const { rows } = await admin.query<Record<'folder' | 'rules', string>>(
    "SELECT current_setting('data_directory') AS folder, current_setting('hba_file') AS rules",
  );
  const { folder, rules } = rows[0]!;
  // This role must show a certificate and a password; everybody else goes on without.
  const rule = `hostssl all ${ROLE} 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\nhost all ${ROLE} all reject\n`;
  writeFileSync(rules, rule + readFileSync(rules, 'utf8'));
  await admin.query(`CREATE ROLE ${ROLE} LOGIN`);
  await admin.query(`GRANT ALL ON DATABASE notification TO ${ROLE}`);
  const { host } = new URL(started.dsn);
  await rotate(first, password);
  return {
    admin,
    rotate,
    dsn: (newPassword: string, file: (name: string) => string) =>
      `postgres://${ROLE}:${newPassword}@${host}/notification?sslmode=verify-full` +
      `&sslrootcert=${file('pg-ca.pem')}&sslcert=${file('pg-cert.pem')}&sslkey=${file('pg-key.pem')}`,
    /** Seconds since each connection of the service was opened. */
    async ages(): Promise<number[]> {
      const { rows } = await admin.query<{ age: number }>(
        `SELECT extract(epoch FROM clock_timestamp() - backend_start)::float8 AS age
           FROM pg_stat_activity WHERE usename = '${ROLE}'`,
      );
      return rows.map(({ age }) => age);
    },
    async stop() {
      await admin.end();
      await started.stop();
    },
  };

  async function rotate(identities: Identities, newPassword: string): Promise<void> {
    const { cert, key, clients } = writePems(folder, identities);
    for (const setting of [
      ...[`ssl_cert_file = '${cert}'`, `ssl_key_file = '${key}'`, `ssl_ca_file = '${clients}'`, 'ssl = on'],
    ])
      await admin.query(`ALTER SYSTEM SET ${setting}`);
    await admin.query(`ALTER ROLE ${ROLE} PASSWORD '${newPassword}'`);
    const { rows } = await admin.query<{ asked: Date }>(
      'SELECT clock_timestamp() AS asked, pg_reload_conf()',
    );
    await eventually('PostgreSQL to have read its settings', async () => {
      const { rowCount } = await admin.query('SELECT WHERE pg_conf_load_time() > $1', [rows[0]!.asked]);
      return rowCount === 1;
    });
  }
}

/** In front of a Temporal without TLS, as a load balancer would do it; it asks for a certificate. */
export async function rotatingTemporal(address: string, first: Identities) {
  const [host = '', upstreamPort] = address.split(':');
  const sockets = new Set<TLSSocket>();
  const optionsOf = ({ server, client }: Identities) => ({
    cert: server.certPem,
    key: server.keyPem,
    ca: client.certPem,
  });
  const server = createServer(
    { ...optionsOf(first), requestCert: true, rejectUnauthorized: true, ALPNProtocols: ['h2'] },
    (socket) => {
      const upstream = connect(Number(upstreamPort), host);
      sockets.add(socket);
      socket.on('error', ignore).on('close', () => {
        sockets.delete(socket);
        upstream.destroy();
      });
      upstream.on('error', ignore).on('close', () => socket.destroy());
      socket.pipe(upstream).pipe(socket);
    },
  );
  server.on('tlsClientError', ignore);
  return {
    port: await listen(server),
    rotate: (identities: Identities) => server.setSecureContext(optionsOf(identities)),
    hangUp,
    stop() {
      hangUp();
      server.close();
    },
  };

  /** Breaks all connections. */
  function hangUp(): void {
    for (const socket of sockets) socket.destroy();
  }
}

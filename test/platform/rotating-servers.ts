/** Servers of one test, each with TLS and a password, whose secrets are rotated while the service runs. */
import { X509Certificate } from 'node:crypto';
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

function writeFiles(
  folder: string,
  files: Record<string, string>,
  owner?: { uid: number; gid: number },
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(files).map(([name, text]) => {
      const file = path.join(folder, `${name}-${Date.now()}.pem`);
      writeFileSync(file, text, { mode: 0o600 });
      if (owner) chownSync(file, owner.uid, owner.gid);
      return [name, file];
    }),
  );
}

const filesOf = ({ server, client }: Identities) => ({
  cert: server.certPem,
  key: server.keyPem,
  clients: client.certPem,
});

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
      const list = String(await admin.client('LIST'));
      return list
        .split('\n')
        .filter((line) => line.includes(`laddr=127.0.0.1:${port} `))
        .map((line) => Number(/ age=(\d+)/.exec(line)![1]));
    },
    async stop() {
      admin.disconnect();
      await started.stop();
    },
  };

  async function rotate(identities: Identities, newPassword: string): Promise<void> {
    const files = writeFiles(dataDir, filesOf(identities));
    // One call: each alone would not fit the other.
    await admin.call(
      ...(['CONFIG', 'SET', 'tls-cert-file', files['cert']!, 'tls-key-file', files['key']!] as const),
      ...(['tls-ca-cert-file', files['clients']!, 'requirepass', newPassword] as const),
    );
  }
}

const ROLE = 'rotated';

export async function rotatingPostgres(dataDir: string, first: Identities, password: string) {
  const started = await startPostgres({ dataDir, port: 0, durable: false, report: ignore });
  const admin = new pg.Pool({ connectionString: started.dsn, max: 2 });
  admin.on('error', ignore);
  const setting = async (name: string) => {
    const { rows } = await admin.query<{ value: string }>('SELECT current_setting($1) AS value', [name]);
    return rows[0]!.value;
  };
  const folder = await setting('data_directory');
  const rules = await setting('hba_file');
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
    const files = writeFiles(folder, filesOf(identities), statSync(folder));
    await admin.query(`ALTER SYSTEM SET ssl_cert_file = '${files['cert']}'`);
    await admin.query(`ALTER SYSTEM SET ssl_key_file = '${files['key']}'`);
    await admin.query(`ALTER SYSTEM SET ssl_ca_file = '${files['clients']}'`);
    await admin.query('ALTER SYSTEM SET ssl = on');
    await admin.query(`ALTER ROLE ${ROLE} PASSWORD '${newPassword}'`);
    await admin.query('SELECT pg_reload_conf()');
    await eventually('PostgreSQL to have its new certificate', async () => {
      const client = new pg.Client({
        connectionString: started.dsn.replace('sslmode=disable', ''),
        // What it shows is compared: it may be one that no client should take.
        ssl: { rejectUnauthorized: false },
      });
      await client.connect();
      const { stream } = (client as unknown as { connection: { stream: TLSSocket } }).connection;
      const shown = stream.getPeerX509Certificate()!.fingerprint256;
      await client.end();
      expect(shown).toBe(new X509Certificate(identities.server.certPem).fingerprint256);
      return true;
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

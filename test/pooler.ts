/**
 * PgBouncer before PostgreSQL, which gives each transaction the next of few connections, so that nothing of a session lasts. As
 * root on Debian and Ubuntu a missing one is installed.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { report } from '../dev/program.ts';
import { commandSucceeds, runCommand } from '../dev/servers/command.ts';
import { LOOPBACK, freePort } from '../dev/servers/ports.ts';
import { installFromDebian } from '../dev/servers/redis.ts';
import { eventually } from './eventually.ts';

export type Pooler = Awaited<ReturnType<typeof startPooler>>;

/**
 * @param serverPort of a PostgreSQL on this machine that trusts everybody.
 * @param roles that may log in.
 * @throws Error when there is no PgBouncer and none can be installed.
 */
export async function startPooler(serverPort: string, roles: readonly string[]) {
  await needPgBouncer();
  const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-pgbouncer-'));
  chmodSync(dir, 0o755);
  const port = await freePort();
  const file = (name: string, content: string): string => {
    writeFileSync(path.join(dir, name), content, { mode: 0o644 });
    return path.join(dir, name);
  };
  const users = file('users.txt', roles.map((role) => `"${role}" ""\n`).join(''));
  const settings = {
    ...{ listen_addr: LOOPBACK, listen_port: port, unix_socket_dir: '' },
    ...{ auth_type: 'trust', auth_file: users },
    ...{ pool_mode: 'transaction', default_pool_size: 4, server_round_robin: 1 },
    max_client_conn: 2_000,
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  const ini = file(
    'pgbouncer.ini',
    `[databases]\n* = host=${LOOPBACK} port=${serverPort}\n[pgbouncer]\n${lines.join('\n')}\n`,
  );
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? await unprivileged() : {};
  const child = spawn('pgbouncer', [ini], { stdio: ['ignore', 'ignore', 'pipe'], cwd: '/', ...user });
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-10_000)));
  const closed = once(child, 'close');
  await Promise.race([
    untilItAnswers(port, roles[0]!),
    closed.then(() => {
      throw new Error(`PgBouncer ended:\n${log}`);
    }),
  ]);
  const version = await runCommand('pgbouncer', ['--version']);
  return {
    /** Its name and version. */
    what: version.split('\n')[0]!,
    port,
    async stop() {
      child.kill('SIGTERM');
      await closed;
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

async function needPgBouncer(): Promise<void> {
  const isInstalled = () => commandSucceeds('pgbouncer', ['--version']);
  if (await isInstalled()) return;
  let reason = '';
  if (process.getuid?.() === 0)
    await installFromDebian(report, 'PgBouncer', 'pgbouncer').catch(
      (error: Error) => (reason = `: ${error.message}`),
    );
  if (!(await isInstalled()))
    throw new Error(
      `these tests need PgBouncer, which is not installed${reason}; try apt-get install pgbouncer`,
    );
}

async function unprivileged(): Promise<{ uid: number; gid: number }> {
  const idOf = async (flag: string) => Number(await runCommand('id', [flag, 'nobody']));
  return { uid: await idOf('-u'), gid: await idOf('-g') };
}

/** Until it speaks at all: there is no such database, which it says. */
async function untilItAnswers(port: number, user: string): Promise<void> {
  await eventually('PgBouncer to answer', async () => {
    const client = new pg.Client({ host: LOOPBACK, port, user, database: 'none' });
    client.on('error', () => undefined);
    const refusal = await client.connect().catch((error: NodeJS.ErrnoException) => error);
    await client.end().catch(() => undefined);
    return !(refusal instanceof Error) || refusal.code !== 'ECONNREFUSED';
  });
}

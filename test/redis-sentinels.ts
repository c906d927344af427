/** Sentinels of a test's own, which watch over a master and its replicas. As many as outvote one. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { LOOPBACK, freePort } from '../dev/servers/ports.ts';
import { findRedis } from '../dev/servers/redis.ts';
import type { RunningServer } from '../dev/servers/server-process.ts';
import { startServer } from '../dev/servers/server-process.ts';
import { eventually } from './eventually.ts';

export type Sentinels = Awaited<ReturnType<typeof startSentinels>>;

const COUNT = 3;
const LIMIT_MS = 60_000;

interface Options {
  /** As the sentinels call the master. */
  name: string;
  master: { host: string; port: number };
  /** Of the sentinels themselves, when they ask for one. */
  password?: string;
}

export async function startSentinels({ name, master, password }: Options) {
  const folder = await mkdtemp(path.join(tmpdir(), 'redis-sentinels-'));
  const command = await findRedis(() => undefined);
  const running: RunningServer[] = [];
  const clients: Redis[] = [];
  const addresses: Options['master'][] = [];
  for (let at = 1; at <= COUNT; at += 1) {
    const port = await freePort();
    const file = path.join(folder, `sentinel-${at}.conf`);
    // They write what they learn into it.
    await writeFile(
      file,
      [
        `bind ${LOOPBACK}`,
        `port ${port}`,
        `dir ${folder}`,
        ...(password === undefined ? [] : [`requirepass ${password}`, `sentinel sentinel-pass ${password}`]),
        `sentinel monitor ${name} ${master.host} ${master.port} 2`,
        `sentinel down-after-milliseconds ${name} 1000`,
        `sentinel failover-timeout ${name} 5000`,
        '',
      ].join('\n'),
    );
    const client = new Redis({
      ...{ host: LOOPBACK, port, lazyConnect: true, enableReadyCheck: false, maxRetriesPerRequest: 0 },
      ...(password === undefined ? {} : { password }),
    });
    client.on('error', () => undefined);
    clients.push(client);
    running.push(
      await startServer({
        name: `sentinel-${at}`,
        title: 'Redis Sentinel',
        dataDir: folder,
        command,
        args: [file, '--sentinel'],
        ports: [{ port, name: 'Redis Sentinel' }],
        ready: () => client.ping().then(() => undefined),
        report: () => undefined,
      }),
    );
    addresses.push({ host: LOOPBACK, port });
  }

  /** Of those that answer. */
  async function saidByAll<T>(...words: [string, ...string[]]): Promise<T[]> {
    const results = await Promise.allSettled(clients.map((client) => client.call('SENTINEL', ...words)));
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value as T] : []));
  }

  async function masterOfMost(): Promise<string> {
    const said = (await saidByAll<string[]>('get-master-addr-by-name', name)).map((parts) => parts.join(':'));
    const most = said.find((one) => said.filter((other) => other === one).length >= 2);
    if (most === undefined) throw new Error(`they do not agree: ${said.join(', ')}`);
    return most;
  }

  return {
    addresses,
    /** As `NOTIFICATION_REDIS_SENTINELS` has them. */
    list: addresses.map(({ host, port }) => `${host}:${port}`).join(','),
    /** Where the master is by the word of most of them, as host:port. */
    master: masterOfMost,

    awaitOther: (than: string) =>
      eventually(
        `another master than ${than}`,
        async () => {
          const now = await masterOfMost();
          return now !== than && now;
        },
        LIMIT_MS,
      ),

    /** Until all of them know a replica that follows, which a failover needs. */
    async awaitReplica() {
      await eventually(
        'all sentinels to know the replica and each other',
        async () => {
          const said = await saidByAll<string[]>('master', name);
          return said.every((flat) => {
            const field = (wanted: string) => flat[flat.indexOf(wanted) + 1];
            return (
              field('num-slaves') === '1' &&
              field('num-other-sentinels') === String(COUNT - 1) &&
              field('flags') === 'master'
            );
          });
        },
        LIMIT_MS,
      );
      await eventually(
        'the replica to follow, by the word of all sentinels',
        async () => {
          const said = await saidByAll<string[][]>('replicas', name);
          return said.every(([flat = []]) => {
            const field = (wanted: string) => flat[flat.indexOf(wanted) + 1];
            return field('flags') === 'slave' && field('master-link-status') === 'ok';
          });
        },
        LIMIT_MS,
      );
    },

    /** Makes the replica the master while the old one lives. */
    async switchOver() {
      await eventually(
        'a sentinel to begin',
        async () => (await clients[0]!.call('SENTINEL', 'failover', name)) === 'OK',
        LIMIT_MS,
      );
    },

    async stopOne() {
      clients.at(-1)!.disconnect();
      await running.at(-1)!.stop();
    },

    async stop() {
      for (const client of clients) client.disconnect();
      await Promise.all(running.map((server) => server.stop()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

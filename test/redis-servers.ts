/** Redis servers of a test's own, which follow each other over a link that can be cut, behind an address that can move. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import type { EmbeddedRedis } from '../dev/servers/redis.ts';
import { startRedis } from '../dev/servers/redis.ts';
import type { TcpProxy } from '../dev/servers/tcp-proxy.ts';
import { startTcpProxy } from '../dev/servers/tcp-proxy.ts';
import { eventually } from './eventually.ts';

export interface RedisServer {
  server: EmbeddedRedis;
  address: { host: string; port: number };
  client: Redis;
}

export async function createRedisServers() {
  const folder = await mkdtemp(path.join(tmpdir(), 'redis-servers-'));
  const servers: RedisServer[] = [];
  let started = 0;
  const proxies: TcpProxy[] = [];

  async function proxyTo({ address }: RedisServer): Promise<TcpProxy> {
    const proxy = await startTcpProxy(address);
    proxies.push(proxy);
    return proxy;
  }

  return {
    /** An address that leads to a server until it is moved. */
    proxyTo,

    async start(): Promise<RedisServer> {
      const dataDir = path.join(folder, String((started += 1)));
      const server = await startRedis({ dataDir, port: 0, durable: false, report: () => undefined });
      const [host, port] = server.addr.split(':') as [string, string];
      const address = { host, port: Number(port) };
      const client = new Redis({ ...address, db: 0, maxRetriesPerRequest: 0 });
      client.on('error', () => undefined);
      servers.push({ server, address, client });
      return servers.at(-1)!;
    },

    /** @returns the link over which the replica follows its master, once it does. */
    async follow(replica: RedisServer, master: RedisServer): Promise<TcpProxy> {
      const link = await proxyTo(master);
      await master.client.config('SET', 'repl-diskless-sync-delay', '0');
      await replica.client.replicaof(link.host, link.port);
      await eventually('the replica to follow', async () =>
        (await replica.client.info('replication')).includes('master_link_status:up'),
      );
      return link;
    },

    async stop() {
      for (const { client } of servers) client.disconnect();
      await Promise.all(servers.map(({ server }) => server.stop()));
      await Promise.all(proxies.map((proxy) => proxy.stop()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

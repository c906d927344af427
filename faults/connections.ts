/** Connections of the run itself, past the networks that are spoiled: what it finds out must not be. */
import type { Client } from '@temporalio/client';
import { Redis } from 'ioredis';
import pg from 'pg';
import { connectOperator } from '../client/connect.ts';
import type { Operator } from '../client/operator.ts';
import { loadConfig } from '../config/load.ts';
import { operatorServers } from '../config/operator.ts';
import { LOOPBACK } from '../dev/servers/ports.ts';
import type { Servers } from './servers.ts';

export interface Connections {
  redis: Redis;
  openRedis(): Redis;
  db: pg.Pool;
  operator: Operator;
  temporal: Client;
  close(): Promise<void>;
}

export function connectDirectly(servers: Servers, env: Record<string, string>): Connections {
  const opened: Redis[] = [];
  const openRedis = () => {
    // Waits for a server that is away, and sends again what got no answer.
    const redis = new Redis({ host: LOOPBACK, port: servers.redis.port, maxRetriesPerRequest: null });
    redis.on('error', () => undefined);
    opened.push(redis);
    return redis;
  };
  const db = new pg.Pool({
    connectionString: servers.dsnAt(servers.postgres.port),
    max: 6,
    options: '-c timezone=UTC',
  });
  db.on('error', () => undefined);
  const { operator, resources, close } = connectOperator(
    operatorServers(loadConfig(env), {
      redis: { host: LOOPBACK, port: servers.redis.port },
      postgresDsn: servers.dsnAt(servers.postgres.port),
      temporalAddress: `${LOOPBACK}:${servers.temporal.port}`,
    }),
  );
  return {
    redis: openRedis(),
    openRedis,
    db,
    operator,
    temporal: resources.temporal,
    async close() {
      for (const redis of opened) redis.disconnect();
      await Promise.allSettled([db.end(), close()]);
    },
  };
}

/** One process of the service for intents with its servers, for runs that judge one thing. */
import { LOOPBACK } from '../dev/servers/ports.ts';
import { startUserService } from '../dev/stand-ins/intent/user-service.ts';
import type { Connections } from './connections.ts';
import { connectDirectly } from './connections.ts';
import type { Options } from './options.ts';
import type { Servers } from './servers.ts';
import { startServers } from './servers.ts';
import type { SupervisedService } from './services.ts';
import { ROOT, superviseService } from './services.ts';

interface OneService {
  servers: Servers;
  connections: Connections;
  service: SupervisedService;
}

/** Starts all of it with default settings, waits until it is ready, and stops it after `work`. */
export async function withOneService<T>(
  options: Options,
  report: (line: string) => void,
  work: (running: OneService) => Promise<T>,
): Promise<T> {
  report('Starting PostgreSQL, Redis and Temporal');
  const servers = await startServers({ keep: options.keep, report });
  const userService = await startUserService();
  const env = {
    PATH: '/usr/bin:/bin',
    NOTIFICATION_ROLES: 'intent',
    NOTIFICATION_REDIS_MASTER_ADDR: `${LOOPBACK}:${servers.redis.port}`,
    NOTIFICATION_POSTGRES_PRIMARY_DSN: servers.dsnAt(servers.postgres.port),
    TEMPORAL_ADDRESS: `${LOOPBACK}:${servers.temporal.port}`,
    NOTIFICATION_USER_SERVICE_BASE_URL: userService.url,
    NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
  };
  const connections = connectDirectly(servers, env);
  const program = { env, folder: ROOT };
  const service = superviseService({ name: 'service', program, dataDir: servers.dataDir });
  try {
    await service.ready();
    return await work({ servers, connections, service });
  } finally {
    await service.stop();
    await connections.close();
    await userService.stop();
    await servers.stop();
  }
}

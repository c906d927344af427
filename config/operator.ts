/**
 * Where programs of operators find the servers: as configured, or embedded in a running `npm start`. The embedded servers write
 * a file in their data directory when they have started, and delete it when they stop.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { given } from '../api/given.ts';
import type { RouterAddress } from '../api/subscription/router-address.ts';
import type { Config } from './load.ts';
import { redisConnection } from './redis.ts';
import { temporalConnection } from './service.ts';
import { sealingKeysOf } from './subscription.ts';
import type { RedisPlace } from './variables.ts';

/** Servers as configured, or as the embedded stack has them. */
export interface OperatorAddresses {
  redis: RedisPlace;
  postgresDsn: string;
  /** Absent when a profile of Temporal's SDK names the server. */
  temporalAddress?: string;
  userServiceUrl?: string;
  uiUrl?: string;
}

/** Redis as the service reaches it: place, credentials and database. */
export const redisServer = (config: Config, place: RedisPlace) => ({
  ...redisConnection(config, place),
  db: config.values.NOTIFICATION_REDIS_DB,
});

/** What client/connect.ts takes. */
export function operatorServers(config: Config, addresses: OperatorAddresses) {
  const { values } = config;
  const { redis, postgresDsn, temporalAddress, uiUrl } = addresses;
  const { connectionOptions, namespace } = temporalConnection(config, temporalAddress);
  return given({
    postgresDsn,
    redis: redisServer(config, redis),
    temporal: connectionOptions,
    namespace,
    payloadKeys: values.NOTIFICATION_PAYLOAD_KEYS,
    payloadPlain: values.NOTIFICATION_PAYLOAD_PLAIN,
    // Only when one is needed: outside production it may write a key into the data directory.
    subscriptionKeys: () => sealingKeysOf(config),
    intentsStream: values.NOTIFICATION_INTENTS_STREAM,
    catalog: config.catalog,
    streams: {
      push: values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM,
      mail: values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM,
    },
    uiUrl,
  });
}

const ENDPOINTS_FILE = 'endpoints.json';

/** Addresses of the servers that are embedded; servers that were configured elsewhere are absent. */
export interface StackEndpoints {
  /** `host:port`. */
  redisAddr?: string;
  postgresDsn?: string;
  /** `host:port`. */
  temporalAddress?: string;
  uiUrl?: string;
  userServiceUrl?: string;
  /** The stand-in routers, with the fingerprints of their certificates. */
  messagingRouters?: RouterAddress[];
  notificationRouters?: RouterAddress[];
  /** The process that runs them. */
  pid: number;
}

export const endpointsFile = (dataDir: string): string => path.resolve(dataDir, ENDPOINTS_FILE);

/** @returns undefined when no stack has written the file, or its process has ended without deleting it. */
export function readStackEndpoints(dataDir: string): StackEndpoints | undefined {
  try {
    const endpoints = JSON.parse(readFileSync(endpointsFile(dataDir), 'utf8')) as StackEndpoints;
    return isAlive(endpoints.pid) ? endpoints : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** A pid that is used again by another process passes; connecting then says that nothing listens. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // The process exists and belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

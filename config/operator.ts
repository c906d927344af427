/** The operator client's view of the configuration: what client/connect.ts takes. */
import { given } from '../api/given.ts';
import type { Config } from './load.ts';
import { redisConnection } from './redis.ts';
import { temporalConnection } from './service.ts';
import { sealingKeysOf } from './subscription.ts';
import type { RedisPlace } from './values.ts';

/** Servers as configured, or as the embedded stack has them. */
export interface OperatorAddresses {
  redis: RedisPlace;
  postgresDsn: string;
  /** Absent when a profile of Temporal's SDK names the server. */
  temporalAddress?: string;
  uiUrl?: string;
}

/** Redis as the service reaches it: place, credentials and database. */
export const redisServer = (config: Config, place: RedisPlace) => ({
  ...redisConnection(config, place),
  db: config.values.NOTIFICATION_REDIS_DB,
});

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
    runbookUrl: values.NOTIFICATION_RUNBOOK_URL,
  });
}

/** The operator client's view of the configuration: what client/connect.ts takes. */
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { keptKey } from '../api/kept-key.ts';
import type { Config, RedisAddress } from './load.ts';
import { hasTemporalProfile, redisConnection } from './load.ts';

/** Servers as configured, or as the embedded stack has them. */
export interface OperatorAddresses {
  redis: RedisAddress;
  postgresDsn: string;
  /** Absent when a profile of Temporal's SDK names the server. */
  temporalAddress?: string;
  uiUrl?: string;
}

export function operatorServers(config: Config, addresses: OperatorAddresses) {
  const { values, temporalEnv, production } = config;
  const { redis, postgresDsn, temporalAddress, uiUrl } = addresses;
  const { connectionOptions, namespace = 'default' } = loadClientConnectConfig({
    overrideEnvVars: { ...temporalEnv, ...(temporalAddress ? { TEMPORAL_ADDRESS: temporalAddress } : {}) },
    // A profile of the user's own must not reach a server that it was not written for.
    disableFile: !hasTemporalProfile(temporalEnv),
  });
  return {
    postgresDsn,
    redis: { ...redisConnection(config, redis), db: values.NOTIFICATION_REDIS_DB },
    temporal: connectionOptions,
    namespace,
    payloadKeys: values.NOTIFICATION_PAYLOAD_KEYS,
    // Only when one is needed: outside production it may write a key into the data directory.
    subscriptionKeys: () =>
      values.NOTIFICATION_SUBSCRIPTION_KEYS ?? (production ? [] : [keptKey(values.NOTIFICATION_DATA_DIR)]),
    intentsStream: values.NOTIFICATION_INTENTS_STREAM,
    agentId: values.NOTIFICATION_SUBSCRIPTION_AGENT,
    ...(uiUrl === undefined ? {} : { uiUrl }),
  };
}

/** What tests of the configuration share. */
import { loadConfig } from '../../config/load.ts';
import { ConfigError } from '../../config/variables.ts';

export type Env = Record<string, string | undefined>;

export const PRODUCTION: Env = {
  NODE_ENV: 'production',
  NOTIFICATION_REDIS_MASTER_ADDR: 'redis.internal:6379',
  NOTIFICATION_REDIS_PASSWORD: 'redis-s3cret',
  NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://notify:pg-s3cret@db.internal:5432/notification',
  NOTIFICATION_USER_SERVICE_BASE_URL: 'http://users.internal:8080',
  TEMPORAL_ADDRESS: 'temporal.internal:7233',
};

export const problemsOf = (env: Env): readonly string[] => problemsIn(() => loadConfig(env));

/** What a reader of configuration finds wrong with it; empty when it takes it. */
export function problemsIn(read: () => unknown): readonly string[] {
  try {
    read();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

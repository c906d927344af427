/** What tests of the configuration share. */
import { loadConfig } from '../../config/load.ts';
import { ConfigError } from '../../config/variables.ts';

export type Env = Record<string, string | undefined>;

/** What must be set. */
export const REQUIRED: Env = {
  NOTIFICATION_REDIS_MASTER_ADDR: 'rediss://redis.internal:6379',
  NOTIFICATION_REDIS_PASSWORD: 'redis-s3cret-4f9a1c',
  NOTIFICATION_POSTGRES_PRIMARY_DSN:
    'postgres://notify:pg-s3cret-71be0d42@db.internal:5432/notification?sslmode=verify-full',
  NOTIFICATION_USER_SERVICE_BASE_URL: 'https://users.internal:8443',
  TEMPORAL_ADDRESS: 'temporal.internal:7233',
};

/** Beside it, what keeps connections from being open. */
export const PRODUCTION: Env = {
  NODE_ENV: 'production',
  ...REQUIRED,
  NOTIFICATION_USER_SERVICE_TOKEN: 'users-7d41c0e95b28af63',
  TEMPORAL_TLS: 'true',
  TEMPORAL_API_KEY: 'temporal-s3cret',
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

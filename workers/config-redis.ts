/** How this process gets into a Redis: with which password, and over which kind of connection. */
import type { Config } from './config.ts';
import type { RedisAddress } from './config-values.ts';

/**
 * Options of a Redis client for one address: password and TLS.
 *
 * Without an authority in the configuration, TLS trusts what Node trusts; the name in the certificate is always checked.
 */
export function redisAccess({ values }: Pick<Config, 'values'>, { tls }: Pick<RedisAddress, 'tls'>) {
  return defined({
    password: values.NOTIFICATION_REDIS_PASSWORD,
    tls: tls
      ? defined({
          ca: values.NOTIFICATION_REDIS_CA_FILE,
          cert: values.NOTIFICATION_REDIS_CERT_FILE,
          key: values.NOTIFICATION_REDIS_KEY_FILE,
        })
      : undefined,
  });
}

/** Without what is not set: clients take an explicit undefined for a value. */
function defined<T extends object>(options: T): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as {
    [Name in keyof T]?: Exclude<T[Name], undefined>;
  };
}

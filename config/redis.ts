/** How this process gets to a Redis: where it is, with which password, and over which kind of connection. */
import type { Config } from './load.ts';
import type { RedisAddress } from './values.ts';

/**
 * Options of a Redis client for one address.
 *
 * Without an authority in the configuration, TLS trusts what Node trusts; the name in the certificate is always checked.
 */
export function redisConnection({ values }: Pick<Config, 'values'>, { host, port, tls }: RedisAddress) {
  const password = values.NOTIFICATION_REDIS_PASSWORD;
  // An explicit undefined is a value to the client, though not to TLS.
  return {
    host,
    port,
    ...(password === undefined ? {} : { password }),
    ...(tls === undefined ? {} : { tls: tlsOptionsOf(values) }),
  };
}

function tlsOptionsOf(values: Config['values']) {
  return {
    ca: values.NOTIFICATION_REDIS_CA_FILE,
    cert: values.NOTIFICATION_REDIS_CERT_FILE,
    key: values.NOTIFICATION_REDIS_KEY_FILE,
  };
}

export const STATEMENT_TIMEOUT_MS = 60_000;

/**
 * Time-outs of services in tests: long enough for a machine that does other things as well. A test of a time-out asks
 * for a short one.
 */
export const PATIENCE = {
  // At most NOTIFICATION_ROUTE_LEASE_TTL; services settle for three times as long after a loss.
  NOTIFICATION_REDIS_OPERATION_TIMEOUT: '5s',
  NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: `${STATEMENT_TIMEOUT_MS}ms`,
  NOTIFICATION_USER_SERVICE_TIMEOUT: '20s',
  NOTIFICATION_HTTP_TIMEOUT: '5m',
  NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '20s',
};

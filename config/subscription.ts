/** Configuration of subscriptions. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { KeyBoxKey } from '../api/key-box.ts';
import { SUBSCRIPTION_TASK_QUEUE } from '../workflows/subscription/contract.ts';
import type { ServiceValues } from './service.ts';
import { duration, durations, notificationRouters, sealingKeys } from './variables.ts';
import type { Kind, ValuesOf } from './variables.ts';
import { sealingKeyWires } from './wire.ts';

const firstAndLongest = durations.refine(
  ([first = 0, longest = 0, ...others]) => first <= longest && others.length === 0,
  'must be two durations, the first not longer than the second, such as 2s,180s',
);

export const SUBSCRIPTION_VARIABLES = {
  NOTIFICATION_SUBSCRIPTION_KEYS: sealingKeys
    .describe(
      'Keys that seal secrets at rest, id:base64 of 32 bytes, comma-separated; the first one seals. Required in production by the role subscription; elsewhere one is kept in the data directory.',
    )
    .meta({ requiredByRole: true, secret: true }),
  NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: notificationRouters
    .describe(
      'Notification routers, comma-separated: ntf://fingerprint@host[,host…][:port]. Required in production by the role subscription.',
    )
    .meta({ requiredByRole: true }),
  NOTIFICATION_SUBSCRIPTION_FIRST_CHECK: duration
    .prefault('24h')
    .describe('Time from the creation of a subscription to its first check.'),
  NOTIFICATION_SUBSCRIPTION_CHECK_INTERVAL: duration
    .prefault('72h')
    .describe('Time between two checks after that.'),
  NOTIFICATION_SUBSCRIPTION_RETRY: firstAndLongest
    .prefault('2s,180s')
    .describe(
      'First and longest delay of work that failed for now: the first is kept five times, from there each one is half as long again.',
    ),
  NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: duration
    .prefault('30s')
    .describe("Time-out of a router's answer; connecting may take half as long again."),
};

type Values = ServiceValues & ValuesOf<typeof SUBSCRIPTION_VARIABLES>;

export const SUBSCRIPTION: Kind<Values> = {
  variables: SUBSCRIPTION_VARIABLES,
  taskQueue: SUBSCRIPTION_TASK_QUEUE,
  // TLS always, with pinned certificates; commands are signed.
  wires: ({ NOTIFICATION_SUBSCRIPTION_KEYS: keys = [] }) => [
    { name: 'routers', gaps: [] },
    ...sealingKeyWires('keys of subscriptions', 'NOTIFICATION_SUBSCRIPTION_KEYS', keys),
  ],
  reconciliation: { looksPerRun: 5, purpose: 'missed subscriptions are not found' },
};

/** Keys that seal secrets at rest; outside production, one is made in the data directory when none is configured. */
export function sealingKeysOf(config: {
  values: Pick<Values, 'NOTIFICATION_SUBSCRIPTION_KEYS' | 'NOTIFICATION_DATA_DIR'>;
  production: boolean;
}): readonly KeyBoxKey[] {
  const { values, production } = config;
  return values.NOTIFICATION_SUBSCRIPTION_KEYS ?? (production ? [] : [keptKey(values.NOTIFICATION_DATA_DIR)]);
}

const KEY_FILE = 'subscription.key';
const KEY_BYTES = 32;

/** The key of a data directory; a missing key is created. @throws Error when the directory cannot be written to. */
function keptKey(dataDir: string): KeyBoxKey {
  const file = path.join(dataDir, KEY_FILE);
  mkdirSync(dataDir, { recursive: true });
  try {
    // Of two processes that begin together, the second takes the key of the first.
    writeFileSync(file, randomBytes(KEY_BYTES).toString('base64'), { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return { id: 'local', key: Buffer.from(readFileSync(file, 'utf8'), 'base64') };
}

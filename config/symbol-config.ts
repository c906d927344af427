/** Configuration of pushing symbols to their targets. */
import { jsonIn } from '../api/text.ts';
import { symbolTargetsSchema } from '../api/symbol-config/push.ts';
import { SYMBOL_CONFIG_TASK_QUEUE } from '../workflows/symbol-config/contract.ts';
import { callerWires, signingVariable } from './caller.ts';
import type { ServiceValues } from './service.ts';
import { duration, durations, readBy } from './variables.ts';
import type { Kind, ValuesOf } from './variables.ts';

/** What the names begin with by which pushes to the targets are proven. */
export const SYMBOL_TARGETS = 'NOTIFICATION_SYMBOL_TARGETS';

export const SYMBOL_CONFIG_VARIABLES = {
  NOTIFICATION_SYMBOL_TARGETS_FILE: readBy(jsonIn, 'must be JSON')
    .pipe(symbolTargetsSchema)
    .describe(
      'JSON file of the targets of symbol configuration. Required in production by the role symbol-config.',
    )
    .meta({ requiredByRole: true, inFile: true }),
  NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS: signingVariable('symbol targets'),
  NOTIFICATION_SYMBOL_RETRY_LADDER: durations
    .prefault('30s,1m,2m,5m,15m')
    .describe(
      'Delays after one, two and more pushes in a row that a target did not acknowledge; the last one repeats.',
    ),
  NOTIFICATION_SYMBOL_CRAWL_INTERVAL: duration
    .refine((ms) => ms >= 1_000, 'must be at least 1s')
    .optional()
    .describe(
      "Interval of the registry's crawler, such as 1h: all targets get the list with its alarm. Without it there is no crawler.",
    ),
};

export const SYMBOL_CONFIG: Kind<ServiceValues & ValuesOf<typeof SYMBOL_CONFIG_VARIABLES>> = {
  variables: SYMBOL_CONFIG_VARIABLES,
  taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
  wires: (values) =>
    callerWires(values, {
      ...{ prefix: SYMBOL_TARGETS, connection: 'symbol-targets', name: 'symbol targets', isSigned: true },
      address: 'NOTIFICATION_SYMBOL_TARGETS_FILE',
      places: values.NOTIFICATION_SYMBOL_TARGETS_FILE ?? [],
      meanwhile: 'they are pushed to again until they answer; see symbols status --behind',
    }),
};

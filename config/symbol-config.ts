/** Configuration of pushing symbols to their targets. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import type { SymbolTarget } from '../api/symbol-config/push.ts';
import { symbolTargetsSchema } from '../api/symbol-config/push.ts';
import { SYMBOL_CONFIG_TASK_QUEUE } from '../workflows/symbol-config/contract.ts';
import { callerWires, signingVariable } from './caller.ts';
import type { ServiceValues } from './service.ts';
import { durations } from './values.ts';
import type { Kind, ValuesOf } from './variables.ts';
import { ConfigError, placeOf } from './variables.ts';

/** What the names begin with by which pushes to the targets are proven. */
export const SYMBOL_TARGETS = 'NOTIFICATION_SYMBOL_TARGETS';

export const SYMBOL_CONFIG_VARIABLES = {
  NOTIFICATION_SYMBOL_TARGETS_FILE: z
    .string()
    .min(1)
    .describe(
      'JSON file of the targets of symbol configuration. Required in production by the role symbol-config.',
    )
    .meta({ requiredByRole: true }),
  NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS: signingVariable('symbol targets'),
  NOTIFICATION_SYMBOL_RETRY_LADDER: durations
    .prefault('30s,1m,2m,5m,15m')
    .describe(
      'Delays after one, two and more pushes in a row that a target did not acknowledge; the last one repeats.',
    ),
};

export const SYMBOL_CONFIG: Kind<ServiceValues & ValuesOf<typeof SYMBOL_CONFIG_VARIABLES>> = {
  variables: SYMBOL_CONFIG_VARIABLES,
  taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
  wires: (values) =>
    callerWires(values, {
      ...{ prefix: SYMBOL_TARGETS, connection: 'symbol-targets', name: 'symbol targets', isSigned: true },
      address: 'NOTIFICATION_SYMBOL_TARGETS_FILE',
      urls: urlsIn(values.NOTIFICATION_SYMBOL_TARGETS_FILE),
    }),
  reaches: ({ NOTIFICATION_SYMBOL_TARGETS_FILE: file }) =>
    file === undefined
      ? undefined
      : {
          name: 'symbol targets',
          places: () => readSymbolTargets(file).map(({ name, url }) => placeOf(name, url)),
          meanwhile: 'they are pushed to again until they answer; see symbols status --behind',
        },
};

/** A file that cannot be read is reported by who needs what is in it. */
function urlsIn(file: string | undefined): string[] {
  if (file === undefined) return [];
  try {
    return readSymbolTargets(file).map(({ url }) => url);
  } catch (error) {
    if (error instanceof ConfigError) return [];
    throw error;
  }
}

/** @throws ConfigError with a line for each thing that is wrong in the file. */
export function readSymbolTargets(file: string): SymbolTarget[] {
  const problem = (text: string) => `NOTIFICATION_SYMBOL_TARGETS_FILE ${file}: ${text}`;
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    // What JSON.parse says quotes the file, and addresses may have passwords in them.
    throw new ConfigError([
      problem(error instanceof SyntaxError ? 'it is not JSON' : (error as Error).message),
    ]);
  }
  const parsed = symbolTargetsSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    parsed.error.issues.map(({ path, message }) => {
      const [index, ...field] = path;
      const where = index === undefined ? '' : `entry ${Number(index) + 1} ${field.join('.')} `;
      return problem(where.replace(/ +/g, ' ') + message);
    }),
  );
}

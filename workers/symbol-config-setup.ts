/** What symbol configuration needs at the start of a process: its targets, and its workflow. */
import { readFileSync } from 'node:fs';
import type { SymbolTarget } from '../api/symbol-config/push.ts';
import { symbolTargetsSchema } from '../api/symbol-config/push.ts';
import { addSampleSymbols } from '../activities/symbol-config/activities.ts';
import { registerTargets } from '../activities/symbol-config/targets.ts';
import {
  SYMBOLS_CHANGED_SIGNAL,
  SYMBOL_CONFIG_TASK_QUEUE,
  SYMBOL_CONFIG_WORKFLOW,
  SYMBOL_REGISTRY,
  symbolConfigWorkflowId,
} from '../workflows/symbol-config/contract.ts';
import { ConfigError } from '../config/load.ts';
import type { Resources } from './resources.ts';

/**
 * Registers the targets and starts the workflow; one that runs stays as it is, and hears of targets that have no list
 * yet. Safe to repeat.
 */
export async function beginSymbolConfig(resources: Resources): Promise<void> {
  const { client, db, log, symbolTargets, sampleSymbols } = resources;
  const { changed, unreached } = await registerTargets(db, SYMBOL_REGISTRY, symbolTargets);
  const newSymbols = await addSampleSymbols(db, sampleSymbols);
  const handle = await client.workflow.start(SYMBOL_CONFIG_WORKFLOW, {
    workflowId: symbolConfigWorkflowId(SYMBOL_REGISTRY),
    taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
    args: [SYMBOL_REGISTRY],
    workflowIdConflictPolicy: 'USE_EXISTING',
    staticSummary: `pushes symbols to ${symbolTargets.length} targets`,
  });
  if (changed + newSymbols > 0) {
    log.info(
      { registry: SYMBOL_REGISTRY, new_targets: changed, new_symbols: newSymbols },
      'symbol targets registered',
    );
  }
  // Also those that a process registered which died before it came to this.
  if (unreached + newSymbols === 0) return;
  await handle.signal(SYMBOLS_CHANGED_SIGNAL);
}

/**
 * @returns the targets of the file, undefined without one.
 * @throws ConfigError with a line for each thing that is wrong in it.
 */
export function readSymbolTargets(file: string | undefined): SymbolTarget[] | undefined {
  if (file === undefined) return undefined;
  const problem = (text: string) => `NOTIFICATION_SYMBOL_TARGETS_FILE ${file}: ${text}`;
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new ConfigError([problem((error as Error).message)]);
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

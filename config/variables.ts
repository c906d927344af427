/** How a variable of the environment is described, and what a kind of work tells about its configuration. */
import { z } from 'zod';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { Wire } from './wire.ts';

declare module 'zod' {
  /** What is known of a variable beside its schema, and its meaning, which is the `description`. */
  interface GlobalMeta {
    /** Must be set in production; elsewhere an embedded server stands in. */
    requiredInProduction?: true;
    /** Must be set in production by processes of the role that it belongs to. */
    requiredByRole?: true;
    /** Why it must not be set in production. */
    refusedInProduction?: string;
    /** Never printed; may come in a file. */
    secret?: true;
    /** It names a file; the value is what is in it. */
    inFile?: true;
  }
}

/** Schemas by the names of variables. A default is a `prefault`, as it would be written in the environment. */
export type Variables = Record<string, z.ZodType>;

/** Values by variable name; those without a default may be undefined. */
export type ValuesOf<V extends Variables> = {
  [Name in keyof V]: z.output<V[Name]> | (V[Name] extends z.ZodPrefault ? never : undefined);
};

/** @returns the default of a variable; undefined without one. */
export const defaultOf = (schema: z.ZodType): string | undefined =>
  schema instanceof z.ZodPrefault ? (schema.def.defaultValue as string) : undefined;

/** What the configuration of one kind of work consists of, and what follows from it. `Values` are those it looks at. */
export interface Kind<Values> {
  variables: Variables;
  /** Values that are fine alone and wrong together; one line each. */
  contradictions?(values: Values): string[];
  /** Of its workers. */
  taskQueue: string;
  /** Its reconciliation: how many looks of processes go to one run of the schedule (60), and what is left undone without it. */
  reconciliation?: { looksPerRun?: number; purpose: string };
  /** The connections that it adds to those of every process. */
  wires?(values: Values): Wire[];
}

/** Where processes see what is to do and trigger the schedule: by itself it runs in case that they see nothing. */
const LOOKS_PER_RUN = 60;

/** Time between two runs of the reconciliation of a kind, ms. A schedule counts in seconds. */
export const reconciliationMs = (
  { reconciliation }: Pick<Kind<never>, 'reconciliation'>,
  { NOTIFICATION_RECONCILIATION_INTERVAL: lookMs }: { NOTIFICATION_RECONCILIATION_INTERVAL: number },
): number => Math.max(1_000, (reconciliation?.looksPerRun ?? LOOKS_PER_RUN) * lookMs);

/** A schedule that must be there, each run of which is one workflow. */
export interface NeededSchedule {
  /** Of the schedule and of the workflows that it starts. */
  id: string;
  workflowType: string;
  taskQueue: string;
  everyMs: number;
  /** What is left undone without it. */
  purpose: string;
}

/** One line for each pair of numbers of which the first is larger than the second. */
export function exceeding<Values>(
  values: Values,
  mustNotExceed: [smaller: keyof Values & string, larger: keyof Values & string, why: string][],
): string[] {
  return mustNotExceed.flatMap(([smaller, larger, why]) => {
    // A value that was refused is undefined.
    const [low, high] = [values[smaller], values[larger]];
    if (typeof low !== 'number' || typeof high !== 'number' || low <= high) return [];
    return [`${smaller} must not exceed ${larger}: ${why}`];
  });
}

/** The environment is wrong; `problems` has one line for every variable at fault. */
export class ConfigError extends SelfExplanatoryError {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the configuration is wrong:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    this.problems = problems;
  }
}

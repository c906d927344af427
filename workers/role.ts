/** What a kind of work is to the process that does it. */
import type { GaugeRead } from '../activities/metrics.ts';
import type { Reconciled } from '../activities/reconciliation.ts';
import type { Kept } from '../activities/retention.ts';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import type { Connections } from './connections.ts';
import type { ProcessContext } from './context.ts';

/** Opens what only this kind of work needs, and reads its settings. @throws DependencyError. */
export type OpenRole = (context: ProcessContext) => Role | Promise<Role>;

export interface Role {
  taskQueue: string;
  /** The activities of its worker, by name. */
  activities(connections: Connections): object;
  /** Activities at the same time in this process, where they wait for others more than they work; default 100. */
  mostActivities?: number;
  /** What is read of its servers at each export. */
  gauges(connections: Connections): readonly GaugeRead[];
  /** Its tables whose rows go when they are old, in the order in which they are deleted from. */
  expiring: readonly Kept[];
  /** Workflows without an end. `startWork` starts them, and the reconciler starts one again that does not run. */
  longLived: readonly LongLivedWorkflow[];
  /** What runs of its reconciliation schedule take up. */
  reconciled?(connections: Connections): readonly Reconciled[];
  /**
   * Repeats for a recovery what was done since then.
   *
   * @returns the entry of its stream from which on, if it reads one.
   */
  rewind?(connections: Connections, sinceMs: number): Promise<string | undefined>;
  /**
   * Begins the work once the worker runs: long-lived workflows, consumers of streams. Safe to repeat.
   *
   * @returns what stops it, together with the worker.
   */
  startWork(connections: Connections): Promise<readonly Stop[]>;
}

/** Ends something that runs in this process for as long as the role does. */
export type Stop = () => Promise<void> | void;

/** One run of the reconciliation of a kind of work, beside its schedule. */
import { randomUUID } from 'node:crypto';
import type { Counts } from '../workflows/recovery-contract.ts';
import { RECONCILIATION_WORKFLOW } from '../workflows/recovery-contract.ts';
import type { Slot } from './harness.ts';

export const reconcile = ({ client }: Pick<Slot, 'client'>, taskQueue: string): Promise<Counts> =>
  client.workflow.execute<() => Promise<Counts>>(RECONCILIATION_WORKFLOW, {
    workflowId: `reconciliation-${randomUUID()}`,
    taskQueue,
  });

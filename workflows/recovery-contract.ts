/** The workflow that makes good what a restored store has forgotten, and how operators follow it. Pure. */
import type { ReconciliationOutcome } from './intent/contract.ts';
import type { MobileReconciliationOutcome } from './mobile-push/contract.ts';
import type { SweepOutcome } from './subscription/contract.ts';

export const RECOVERY_WORKFLOW = 'recovery';
/** One at a time: whoever asks for another one follows the one that runs. */
export const RECOVERY_WORKFLOW_ID = 'recovery';
/** Query; the answer is a RecoveryProgress. */
export const RECOVERY_PROGRESS_QUERY = 'progress';

export interface RecoveryInput {
  /** The intent stream. */
  stream: string;
  /** The streams that routes leave by. */
  outbound: string[];
  /** To which moment the stores may have been put back, ms before now. */
  sinceMs: number;
  /** Other kinds of work that processes run for. */
  also: ('mobile-push' | 'symbol-config' | 'account-callback' | 'subscription')[];
  requestedBy: string;
}

/** What one stream had lost. */
export interface RestoredStream {
  stream: string;
  /** Published routes whose entries were looked for. */
  checked: number;
  /** Those that were handed off again. */
  repaired: number;
}

export interface RecoveryProgress {
  step: 'reading again' | 'looking for entries' | 'taking work up' | 'done';
  /** Entries from `from` up to `upTo` are read again; absent when nothing was ever read. */
  readAgain?: { from: string; upTo: string };
  restored: RestoredStream[];
  takenUp: ReconciliationOutcome;
  mobilePush?: MobileReconciliationOutcome;
  subscription?: SweepOutcome;
  /** The symbols are pushed to all targets. */
  symbolsPushed?: boolean;
  /** Inputs of accounts are taken again from this entry on; absent when there are none of that time. */
  inputsAgainFrom?: string;
}

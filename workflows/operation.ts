/**
 * Something that an operator does to many. Rows say what was chosen and what is done; this workflow has one page of them
 * after the other dealt with, at a rate, and can be paused, resumed and aborted between two.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> running
 *   running --> paused: pause
 *   paused --> running: resume
 *   running --> done: nothing is left
 *   running --> aborted: abort
 *   paused --> aborted: abort
 * ```
 */
import {
  CancellationScope,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineUpdate,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { OperationActivities } from '../activities/operations.ts';
import { byWhom } from './details.ts';
import { checkTexts, isHistoryLong, onRenewal, refuse } from './long-lived.ts';
import { DATABASE, OPERATION_PAGE } from './policies.ts';
import type { OperationChange, OperationInput, OperationState } from './operation-contract.ts';
import {
  ABORT_OPERATION_UPDATE,
  OPERATION_STATE_QUERY,
  PAUSE_UPDATE,
  RESUME_UPDATE,
} from './operation-contract.ts';

const pages = proxyActivities<OperationActivities>(OPERATION_PAGE);
const database = proxyActivities<OperationActivities>(DATABASE);

/** @returns how it ended. */
export async function operation(input: OperationInput): Promise<OperationState> {
  const { operationId, kind, rate, carried } = input;
  let state: OperationState = carried ?? { status: 'running', total: 0, done: 0, ordered: 0 };
  const isRenewed = onRenewal();
  let step: CancellationScope | undefined;
  let isPauseNoted = state.status === 'paused';
  let resumed = 0;
  /** An update may have changed it while something was awaited. */
  const isRunning = () => state.status === 'running';
  const show = () => setCurrentDetails(describe(input, state));

  setHandler(defineQuery<OperationState>(OPERATION_STATE_QUERY), () => state, {
    description: 'How far it is.',
  });
  const onUpdate = (update: string, status: OperationState['status'], description: string) =>
    setHandler(
      defineUpdate<OperationState, [OperationChange | undefined]>(update),
      (change) => {
        const { requestedBy: changedBy = 'operator' } = change ?? {};
        state = { ...state, status, changedBy, changedAtMs: Date.now() };
        if (status === 'running') resumed += 1;
        // One that waits for what it needs would wait on, and then be made.
        if (status !== 'running') step?.cancel();
        show();
        return state;
      },
      { validator: (change: OperationChange | undefined) => check(change, state), description },
    );
  onUpdate(PAUSE_UPDATE, 'paused', 'Begins nothing more until it is resumed. {requestedBy?}');
  onUpdate(RESUME_UPDATE, 'running', 'Goes on. {requestedBy?}');
  onUpdate(ABORT_OPERATION_UPDATE, 'aborting', 'Ends it; what is done stays done. {requestedBy?}');

  let isLeft = true;
  while (isLeft) {
    show();
    await notePause();
    await condition(() => state.status !== 'paused' || isRenewed());
    if (isRenewed() || isHistoryLong()) {
      await condition(allHandlersFinished);
      await continueAsNew<typeof operation>({ ...input, carried: state });
    }
    if (state.status === 'aborting') break;
    await notePause();
    if (!isRunning()) continue;
    step = new CancellationScope();
    const resumedBefore = resumed;
    try {
      const {
        counts,
        isLeft: isMore,
        pausedBy,
      } = await step.run(() => pages.doPage(operationId, kind, rate));
      state = { ...state, ...counts };
      isLeft = isMore;
      // Its row heard of it first, or Temporal has forgotten it.
      if (pausedBy !== undefined && resumed === resumedBefore && isRunning()) {
        state = { ...state, status: 'paused', changedBy: pausedBy, changedAtMs: Date.now() };
        isPauseNoted = true;
      }
    } catch (error) {
      // What it has done its rows say.
      if (!isCancellation(error) || !step.consideredCancelled) throw error;
    }
    step = undefined;
  }
  // One that was aborted within its first step does not know how many there are.
  const isAborted = isLeft && (state.total === 0 || state.done < state.total);
  state = { ...state, status: isAborted ? 'aborted' : 'done' };
  await database.endOperation(operationId, state.status);
  show();
  await condition(allHandlersFinished);
  return state;

  /** Should Temporal forget that it is paused, its row does not. */
  async function notePause(): Promise<void> {
    const isPaused = state.status === 'paused';
    if (isPaused === isPauseNoted) return;
    isPauseNoted = isPaused;
    await database.notePause(operationId, isPaused ? (state.changedBy ?? 'operator') : null);
  }
}

function check(change: OperationChange | undefined, { status }: OperationState): void {
  if (status === 'done' || status === 'aborted' || status === 'aborting')
    refuse(`the operation is ${status}`);
  if (change !== undefined && (typeof change !== 'object' || change === null)) refuse('an object is wanted');
  checkTexts(change ?? {}, 'requestedBy');
}

function describe({ kind, rate }: OperationInput, state: OperationState): string {
  const { status, total, done, ordered, changedBy } = state;
  const rest = done - ordered;
  return `${kind}, ${status}${byWhom(changedBy)}: ${done} of ${total || '?'} done, at ${rate} a second${rest === 0 ? '' : `; ${rest} had nothing to do`}`;
}

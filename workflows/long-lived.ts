/** What workflows that run for good have in common. */
import { ApplicationFailure, defineSignal, setHandler, workflowInfo } from '@temporalio/workflow';
import { problemOfTexts } from './details.ts';
import { RENEW_SIGNAL } from './renewal-contract.ts';

/**
 * Whether a run is to be continued by a new one: replaying its history must stay quick.
 *
 * @param maxEvents of a run; the server may ask for a new one sooner.
 */
export function isHistoryLong(maxEvents = 1_000): boolean {
  const { historyLength, continueAsNewSuggested } = workflowInfo();
  return historyLength >= maxEvents || continueAsNewSuggested;
}

/** Takes the signal `renew`. @returns whether it has come: the run is to be continued by a new one. */
export function onRenewal(): () => boolean {
  let isAsked = false;
  setHandler(defineSignal(RENEW_SIGNAL), () => void (isAsked = true), {
    description: 'Goes on in a new run, which is written with the newest key.',
  });
  return () => isAsked;
}

/**
 * One thing after the other. Work whose process died is done again when its time-out says so, and must not come after,
 * and undo, what was asked for in the meantime.
 *
 * @returns what runs work one at a time, in the order in which it is handed over; failed work holds nothing up.
 */
export function inOrder(): <Result>(work: () => Promise<Result>) => Promise<Result> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const outcome = last.then(work);
    last = outcome.catch(() => undefined);
    return outcome;
  };
}

/** Refuses an update before anything changes; the caller gets the message. */
export function refuse(message: string): never {
  throw ApplicationFailure.nonRetryable(message, 'InvalidRequest');
}

/** @throws ApplicationFailure `InvalidRequest` for a field that is given and is no text that can be stored. */
export function checkTexts(request: object, ...fields: string[]): void {
  const problem = problemOfTexts(request, ...fields);
  if (problem !== undefined) refuse(problem);
}

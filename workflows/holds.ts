/** The updates `pause` and `resume` of workflows that steer by a row of `notification.holds`. */
import { defineUpdate, proxyActivities, setHandler } from '@temporalio/workflow';
import type { HoldActivities } from '../activities/holds.ts';
import type { Hold, HoldKey, ResumeRequest } from './hold-contract.ts';
import { PAUSE_UPDATE, RESUME_UPDATE, problemOfHold } from './hold-contract.ts';
import { inOrder, refuse } from './long-lived.ts';
import { DATABASE } from './policies.ts';

const database = proxyActivities<HoldActivities>(DATABASE);

export const { loadHold } = database;

/** A workflow that steers by a hold. */
interface Steered<State> {
  key: HoldKey;
  /** What the updates do, for the Web UI. */
  pauses: string;
  resumes: string;
  /** Follows the row. */
  follow(hold: Hold): void;
  /** @returns what an update answers, once the change has taken effect. */
  answer(): State | Promise<State>;
}

/** Handles both updates. The row is changed first; changes of two operators are made in the order in which they came. */
export function onHold<State>({ key, pauses, resumes, follow, answer }: Steered<State>): void {
  const oneAtATime = inOrder();
  const onUpdate = (update: string, isPaused: boolean, description: string): void =>
    setHandler(
      defineUpdate<State, [ResumeRequest | null | undefined]>(update),
      async (request) => {
        await oneAtATime(async () => follow(await database.setHold(key, isPaused, request ?? {})));
        return answer();
      },
      {
        validator(request) {
          const problem = problemOfHold(request);
          if (problem !== undefined) refuse(problem);
        },
        description,
      },
    );
  onUpdate(PAUSE_UPDATE, true, pauses);
  onUpdate(RESUME_UPDATE, false, resumes);
}

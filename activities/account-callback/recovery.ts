/** What an operator's recovery asks of the inputs of accounts. */
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { giveAgain } from '../group-watch.ts';

interface InputRecoveryResources {
  redis: Redis;
  log: Logger;
  callbackStream: { stream: string; group: string };
}

export type InputRecoveryActivities = ReturnType<typeof createInputRecoveryActivities>;

export function createInputRecoveryActivities({ redis, log, callbackStream }: InputRecoveryResources) {
  const { stream, group } = callbackStream;
  return {
    /**
     * Gives the entries of the last while to the group again, as far as the stream still has them. Entries that are kept
     * already have no further effect.
     *
     * @returns the entry from which on; none when there is nothing of that time.
     * @throws what Redis fails with.
     */
    async giveInputsAgain(sinceMs: number): Promise<{ from?: string }> {
      const from = await giveAgain({ redis, stream, group }, sinceMs);
      if (from === undefined) return {};
      log.warn({ stream, group, read_from: from }, 'inputs are given to the group again, for a recovery');
      return { from };
    },
  };
}

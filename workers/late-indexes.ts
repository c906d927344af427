/** Builds, while the process works, the indexes that no migration can (migrations/indexes.ts). */
import type { Logger } from 'pino';
import { watchEvery } from '../activities/watch.ts';
import { buildLateIndexes } from '../migrations/indexes.ts';
import type { Running } from './role.ts';

/** Looks every `everyMs` until all are there. */
export function startLateIndexes(dsn: string, log: Logger, everyMs: number): Running {
  const stopping = new AbortController();
  let isComplete = false;
  const watch = watchEvery(everyMs, look, (reason) => log.warn({ reason }, 'indexes could not be built'));
  return {
    async stop() {
      stopping.abort();
      await watch.stop();
    },
  };

  async function look(): Promise<void> {
    if (isComplete) return;
    const outcome = await buildLateIndexes(dsn, stopping.signal);
    isComplete = outcome.isComplete;
    if (outcome.built.length > 0) log.info({ indexes: outcome.built }, 'indexes built');
  }
}

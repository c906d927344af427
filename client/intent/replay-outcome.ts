/** How replayed routes ended. */
import type { Pool } from 'pg';
import type { ReplayedRoute } from './replay.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';

export interface ReplayOutcome {
  published: number;
  skipped: number;
  /** Spent their new budget as well. */
  diedAgain: number;
  /** Not settled when the wait ended; 0 unless it ran out of time. */
  open: number;
  /** Removed meanwhile, by retention. */
  gone: number;
}

/** Routes looked up in one statement. */
const CHUNK = 2_000;

export const waitForReplayed =
  (db: Pool) =>
  /**
   * Waits until replayed routes are published, skipped or dead again.
   *
   * @param startedAt of the replay: a route whose last death is older has not been taken up yet.
   * @returns how they stand, with some still open when the time was up.
   */
  async (
    routes: readonly Pick<ReplayedRoute, 'notificationId' | 'routeId'>[],
    startedAt: string,
    options: WaitOptions & { onProgress?: (outcome: ReplayOutcome) => void },
  ): Promise<ReplayOutcome> => {
    let outcome: ReplayOutcome = { published: 0, skipped: 0, diedAgain: 0, open: routes.length, gone: 0 };
    await waitUntil(
      async () => {
        outcome = await outcomeOf(db, routes, startedAt);
        options.onProgress?.(outcome);
        return outcome.open === 0 ? outcome : undefined;
      },
      { everyMs: 500, ...options },
    );
    return outcome;
  };

async function outcomeOf(
  db: Pool,
  routes: readonly Pick<ReplayedRoute, 'notificationId' | 'routeId'>[],
  startedAt: string,
): Promise<ReplayOutcome> {
  const total: ReplayOutcome = { published: 0, skipped: 0, diedAgain: 0, open: 0, gone: 0 };
  for (let from = 0; from < routes.length; from += CHUNK) {
    const chunk = routes.slice(from, from + CHUNK);
    const { rows } = await db.query<ReplayOutcome>(OUTCOME, [
      chunk.map(({ notificationId }) => notificationId),
      chunk.map(({ routeId }) => routeId),
      startedAt,
    ]);
    for (const name of Object.keys(total) as (keyof ReplayOutcome)[]) total[name] += rows[0]![name];
  }
  return total;
}

const OUTCOME = `
  SELECT count(*) FILTER (WHERE status = 'published')::int AS published,
         count(*) FILTER (WHERE status = 'skipped')::int AS skipped,
         count(*) FILTER (WHERE status = 'dead_letter' AND dead_lettered_at >= $3::timestamptz)::int AS "diedAgain",
         count(*) FILTER (WHERE status IN ('pending', 'failed')
                             OR status = 'dead_letter' AND dead_lettered_at < $3::timestamptz)::int AS open,
         count(*) FILTER (WHERE status IS NULL)::int AS gone
    FROM unnest($1::text[], $2::text[]) AS replayed (notification_id, route_id)
    LEFT JOIN notification.routes USING (notification_id, route_id)`;

/**
 * Delivers intents together, in mode `direct`: they are accepted and their first attempts are made by the code that does it
 * for one. What a workflow costs is left out for all that go well.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import type { Pool } from 'pg';
import { reasonOf } from '../reason.ts';
import { isPostgresAway } from '../postgres.ts';
import type { AcceptIntents } from './acceptance.ts';
import type { RouteResources } from './publication.ts';
import { createPublisher } from './publication.ts';
import { loadRoutesOf } from './route-rows.ts';
import { publishFresh } from './routes.ts';

/** Who is not found by then does not hold the others up, ms. */
const PATIENCE_MS = 2_000;

interface DirectResources extends RouteResources {
  db: Pool;
  acceptIntents: AcceptIntents;
}

/** @returns the notifications that need a workflow: not decided, or with a route neither published nor skipped. */
export type DeliverTogether = (notificationIds: readonly string[]) => Promise<Set<string>>;

/** @returns delivers intents inside an activity; it throws ApplicationFailure of PostgreSQL, CancelledFailure. */
export function createDirectDelivery(resources: DirectResources): DeliverTogether {
  const { db, log, acceptIntents } = resources;
  const publisher = createPublisher(resources, { sparesBudgets: true });

  return async (notificationIds) => {
    if (notificationIds.length === 0) return new Set();
    try {
      return await deliver(notificationIds);
    } catch (error) {
      if (isPostgresAway(error) || Context.current().cancellationSignal.aborted) throw error;
      // What spoils it for all is met by the workflow of the one that it belongs to.
      log.warn({ reason: reasonOf(error) }, 'intents could not be delivered together, each gets a workflow');
      return new Set(notificationIds);
    }
  };

  async function deliver(notificationIds: readonly string[]): Promise<Set<string>> {
    const begun = await publisher.begin();
    if ('error' in begun) {
      log.debug({ reason: reasonOf(begun.error) }, 'intents are left to workflows');
      return new Set(notificationIds);
    }
    const patience = sleep(PATIENCE_MS, undefined, { ref: false });
    const decided = await acceptIntents(notificationIds, { attempt: 0, patience });
    const open = new Set<string>();
    const accepted: string[] = [];
    for (const [id, one] of decided) {
      if ('error' in one) {
        if (isPostgresAway(one.error)) throw one.error;
        open.add(id);
      } else if (one.acceptance.outcome === 'accepted') accepted.push(id);
    }
    const fresh = [...decided.values()].flatMap((one) => ('fresh' in one ? one.fresh() : []));
    const known = new Set(fresh.map(({ notification_id }) => notification_id));
    const rows = [
      ...fresh,
      ...(await loadRoutesOf(
        db,
        accepted.filter((id) => !known.has(id)),
      )),
    ];
    const attempts = await publishFresh(publisher, rows, begun);
    for (const row of rows) {
      const { status } = attempts.get(row) ?? row;
      if (status !== 'published' && status !== 'skipped') open.add(row.notification_id);
    }
    return open;
  }
}

/** Intents for the service, as a producer publishes them, and what is seen of their end. */
import { randomUUID } from 'node:crypto';
import type { NotificationIntent } from '../client/notificationintent.ts';
import { DEFAULT_INTENTS_STREAM, newGameTurnReady } from '../client/notificationintent.ts';
import { envelopeOf } from '../api/intent/entry.ts';
import { NOTIFICATION_WORKFLOW } from '../workflows/intent/contract.ts';
import type { Bench, Part, Way } from './environment.ts';
import { appendedAtMs } from './environment.ts';
import type { Round } from './rounds.ts';
import { LOOK_INTERVAL_MS, runRound, until } from './rounds.ts';

/** A push and an e-mail for each recipient. */
export const ROUTES_PER_RECIPIENT = 2;
export const GATEWAY_STREAM = 'gateway:client-events';
export const MAIL_STREAM = 'mail:delivery_commands';
/** `user-1` to `user-20000` are known to the stand-in User Service. */
const KNOWN_USERS = 20_000;
/** Commands of one pipeline. */
const PIPELINE_SIZE = 500;
/** Once all routes are handed off, of which few are not settled yet: it takes some looks. */
const LAST_POLL_INTERVAL_MS = 20;

/** An intent for the next users. */
export function intentFor(recipients: number): NotificationIntent {
  return newGameTurnReady({
    idempotencyKey: randomUUID(),
    occurredAt: Date.now(),
    recipientUserIds: Array.from({ length: recipients }, nextUser),
    payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
  });
}

let users = 0;

function nextUser(): string {
  users = (users % KNOWN_USERS) + 1;
  return `user-${users}`;
}

/** Appends intents as fast as Redis takes them. @returns their notification ids. */
export async function appendIntents({ redis }: Part, count: number, recipients = 1): Promise<string[]> {
  const ids: string[] = [];
  while (ids.length < count) {
    const pipeline = redis.pipeline();
    for (let n = Math.min(PIPELINE_SIZE, count - ids.length); n > 0; n -= 1) {
      const fields = Object.entries(envelopeOf(intentFor(recipients))).flat();
      pipeline.xadd(DEFAULT_INTENTS_STREAM, '*', ...fields);
    }
    for (const [error, id] of (await pipeline.exec()) ?? []) {
      if (error) throw error;
      ids.push(String(id));
    }
  }
  return ids;
}

/** Routes that were ever handed off by a part's service: what Redis counts, however the streams are trimmed. */
export async function countHandOffs({ redis }: Part): Promise<number> {
  const added = async (stream: string): Promise<number> => {
    if ((await redis.exists(stream)) === 0) return 0;
    const info = (await redis.xinfo('STREAM', stream)) as (string | number)[];
    return Number(info[info.indexOf('entries-added') + 1]);
  };
  const [pushes, mails] = await Promise.all([added(GATEWAY_STREAM), added(MAIL_STREAM)]);
  return pushes + mails;
}

/** Waits until every route of these notifications is settled. @throws Error unless all of them are published. */
export async function routesSettled({ db }: Part, ids: readonly string[], routes: number): Promise<void> {
  let found = { settled: 0, published: 0 };
  await until(`${routes} routes to be settled`, LAST_POLL_INTERVAL_MS, async () => {
    found = (await db.query<typeof found>(COUNT_SETTLED, [ids])).rows[0]!;
    return found.settled >= routes;
  });
  if (found.published !== routes || found.settled !== routes) {
    throw new Error(`of ${routes} routes ${found.settled} are settled and ${found.published} published`);
  }
}

/** Publishes all intents together; ends when every route is settled in PostgreSQL and every workflow is closed. */
export async function burst(bench: Bench, way: Way, count: number, recipients = 1): Promise<Round> {
  const [part, service] = await Promise.all([bench.part(way), serviceOf(bench, way)]);
  const routes = count * recipients * ROUTES_PER_RECIPIENT;
  const before = await countHandOffs(part);
  let ids: string[] = [];
  return runRound(bench, {
    part,
    workerPid: service.pid,
    count,
    // Without trouble, an intent has no workflow there.
    ...(way === 'direct' ? {} : { workflowType: NOTIFICATION_WORKFLOW }),
    async begin() {
      ids = await appendIntents(part, count, recipients);
      return appendedAtMs(ids[0]!);
    },
    async settled() {
      await until(`${routes} routes to be handed off`, LOOK_INTERVAL_MS, async () => {
        return (await countHandOffs(part)) - before >= routes;
      });
      await routesSettled(part, ids, routes);
    },
  });
}

/** The service that works in a way, running. */
export const serviceOf = (bench: Bench, way: Way) => bench.service(way, { NOTIFICATION_ROUTE_DISPATCH: way });

/** $1 notification ids. */
const COUNT_SETTLED = `
  SELECT (count(*) FILTER (WHERE status IN ('published', 'skipped', 'dead_letter')))::int AS settled,
         (count(*) FILTER (WHERE status = 'published'))::int AS published
    FROM notification.routes
   WHERE notification_id = ANY ($1)`;

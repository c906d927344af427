/**
 * What producers are told about their intents. The statement that makes something true writes it into the outbox, too:
 * every such statement exists twice, `quiet` for a process without outcomes, and `telling`. outcome-relay.ts brings the rows
 * to their stream.
 *
 * Exactly one event is the end of an intent. Refusals have a row of their own by which they happen once. An accepted
 * intent ends with its last open route, and two may close at once without seeing each other: they meet at the intent's
 * tally, whose lock lets one of them be the last. It also gives the events of an intent their order, because a row gets
 * its number behind it.
 */
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import type { OutcomeKind } from '../../api/intent/outcome.ts';
import { ROUTE_EXPIRED, TERMINAL_OUTCOMES } from '../../api/intent/outcome.ts';
import type { Statement } from '../postgres.ts';
import { query } from '../postgres.ts';

/** A statement that makes something true. */
export interface OutcomeStatement {
  /** Absent where there is nothing to do without outcomes. Of a move it keeps the tally, if there is one, and tells the end. */
  quiet?: Statement;
  /** With more parameters: the kinds that are told, and what only it needs. */
  telling: Statement;
}

export interface Outcomes {
  /** Whether anything is told. */
  isOn: boolean;
  /**
   * Runs a statement as `query` does, and has it tell what it made true if that is wanted.
   *
   * @param more values that only the telling statement takes.
   */
  run<Row extends QueryResultRow>(
    db: Pool | PoolClient,
    statement: OutcomeStatement,
    values: unknown[],
    more?: () => unknown[],
  ): Promise<Row[]>;
}

/** @param kinds that are told, or nothing at all. The ends are among them, since a tally goes with its end. */
export function createOutcomes(kinds: readonly OutcomeKind[]): Outcomes {
  const isOn = kinds.length > 0;
  const told = [...new Set([...TERMINAL_OUTCOMES, ...kinds])];
  return {
    isOn,
    run: (db, { quiet, telling }, values, more = () => []) =>
      isOn
        ? query(db, telling, [...values, told, ...more()])
        : quiet === undefined
          ? Promise.resolve([])
          : query(db, quiet, values),
  };
}

/** As `routeRefOf` (api/ids.ts). */
const routeRef = (route: string): string =>
  `CASE WHEN ${route}.route_id ~ '^(push|email):[A-Za-z0-9_.:-]{1,120}$' THEN ${route}.route_id
                     ELSE ${route}.channel || ':~' || md5(${route}.route_id) END`;

/** Why a route was skipped after acceptance. */
const SKIP_REASON = `CASE moved.last_error_classification WHEN '${ROUTE_EXPIRED}' THEN 'expired' ELSE 'cancelled' END`;

/** The end of an intent whose tally is `tally`, whose notification has no open route any more. */
const ENDING = `
             SELECT 2, tally.notification_id || '/end', tally.ending, tally.notification_id,
                    json_build_object('published', tally.published, 'skipped', tally.skipped,
                                      'dead_lettered', tally.dead_lettered)
               FROM tally
              WHERE tally.open < 1`;

/**
 * @param events SELECT of ordinal, event id, kind, notification and details. @param subjects what the notifications are:
 * a table with `notification_type`, `producer`, `idempotency_key`, `request_id` and `trace_id`.
 * @param kinds number of the parameter that has the kinds that are told; absent: all are.
 */
const tell = (events: string, subjects: string, kinds?: number): string => `
    told AS (
      INSERT INTO notification.outcomes (events, event_count, written_at)
      SELECT json_agg(json_build_array(event_id, kind, notification_id, notification_type, producer, idempotency_key,
                                       request_id, trace_id, details) ORDER BY ordinal),
             count(*), statement_timestamp()
        FROM (${events}
             ) AS event (ordinal, event_id, kind, notification_id, details)
        JOIN ${subjects} AS subject USING (notification_id)
       ${kinds === undefined ? '' : `WHERE kind = ANY ($${kinds}::text[])`}
      HAVING count(*) > 0
    )`;

interface RouteMove {
  name: string;
  /** UPDATE of `notification.routes AS route`, without RETURNING. */
  update: string;
  /** Columns that `and` or `result` need of `moved` beyond those that every move has. */
  returning?: string;
  /** How the routes stood before. */
  from: 'open' | 'dead_letter' | 'skipped';
  /** More of the statement, as ", name AS (…)". */
  and?: string;
  /** SELECT of what the statement returns, from `moved`. */
  result: string;
  parameters: number;
}

/** A statement that moves routes from one status to others. */
export function routeMove(move: RouteMove): OutcomeStatement {
  const { name, update, returning, from, and = '', result, parameters } = move;
  const moved = `
    WITH moved AS (${update}
      RETURNING route.notification_id, route.route_id, route.channel, route.status,
                route.last_error_classification${returning === undefined ? '' : `, ${returning}`}
    )${and}`;
  return {
    quiet: { name, text: `${moved}, ${tellMoves(from)}\n    ${result}` },
    telling: { name: `tell_${name}`, text: `${moved}, ${tellMoves(from, parameters + 1)}\n    ${result}` },
  };
}

/**
 * An intent that was accepted with outcomes is counted by processes without them, too: otherwise its end would be told too
 * early, or never. @param kinds absent: only the end is told.
 */
function tellMoves(from: RouteMove['from'], kinds?: number): string {
  const was = (status: RouteMove['from']): number => (from === status ? 1 : 0);
  const events = `
             SELECT 1, moved.notification_id || '/' || moved.ref || '/' || moved.generation || '/' || moved.status,
                    CASE moved.status
                      WHEN 'published' THEN CASE WHEN moved.generation + ${was('dead_letter')} > 0 THEN 'recovered'
                                                 ELSE 'route_published' END
                      WHEN 'skipped' THEN 'route_skipped'
                      ELSE 'route_dead_lettered' END,
                    moved.notification_id,
                    json_build_object('route', moved.ref, 'channel', moved.channel, 'generation', moved.generation,
                                      'reason', CASE moved.status WHEN 'skipped' THEN ${SKIP_REASON}
                                                     WHEN 'dead_letter' THEN moved.last_error_classification END)
               FROM (SELECT moved.*, ${routeRef('moved')} AS ref,
                            (SELECT count(*)
                               FROM notification.replays
                              WHERE replays.notification_id = moved.notification_id
                                AND replays.route_id = moved.route_id) AS generation
                       FROM moved
                      WHERE moved.status NOT IN ('pending', 'failed')) AS moved
              UNION ALL${ENDING}`;
  return `change AS (
      SELECT notification_id, sum((status NOT IN ('pending', 'failed'))::int - ${1 - was('open')})::int AS closed,
             sum((status = 'published')::int)::int AS published,
             sum((status = 'skipped')::int - ${was('skipped')})::int AS skipped,
             sum((status = 'dead_letter')::int - ${was('dead_letter')})::int AS dead_lettered,
             bool_or(status = 'skipped' AND ${SKIP_REASON} = 'cancelled') AS is_cancelled,
             bool_or(status = 'skipped' AND ${SKIP_REASON} = 'expired') AS is_expired
        FROM moved
       GROUP BY notification_id
    ), tally AS (
      UPDATE notification.outcome_tallies AS tally
         SET open = tally.open - change.closed, published = tally.published + change.published,
             skipped = tally.skipped + change.skipped, dead_lettered = tally.dead_lettered + change.dead_lettered,
             ending = CASE WHEN change.is_cancelled THEN 'cancelled'
                           WHEN change.is_expired AND tally.ending = 'settled' THEN 'expired'
                           ELSE tally.ending END
        FROM change
       WHERE tally.notification_id = change.notification_id AND tally.open > 0
      RETURNING tally.*
    ), ${tell(kinds === undefined ? ENDING : events, 'notification.records', kinds)}`;
}

interface Insertion {
  name: string;
  /** `WITH record AS (INSERT … RETURNING what events have), slots AS (INSERT … RETURNING …)` and more. */
  inserts: string;
  result: string;
  parameters: number;
}

/**
 * Acceptance. The telling statement takes, after the kinds: notifications, and for each how many routes are open, how
 * many there are, and how many are skipped. One whose routes come in several statements counts one more as open, until
 * `END_ACCEPTANCE`.
 */
export const acceptance = ({ name, inserts, result, parameters }: Insertion): OutcomeStatement => ({
  quiet: { name, text: `${inserts}\n    ${result}` },
  telling: {
    name: `tell_${name}`,
    text: `${inserts}, counted AS (
      SELECT notification_id, open, routes, skipped
        FROM unnest($${parameters + 2}::text[], $${parameters + 3}::int[], $${parameters + 4}::int[], $${parameters + 5}::int[])
               AS count (notification_id, open, routes, skipped)
        JOIN record USING (notification_id)
    ), tally AS (
      INSERT INTO notification.outcome_tallies
        (notification_id, open, routes, published, skipped, dead_lettered, ending, counted_at)
      SELECT notification_id, open, routes, 0, skipped, 0, 'settled', statement_timestamp()
        FROM counted
      ON CONFLICT (notification_id) DO NOTHING
      RETURNING *
    ), ${tell(
      `
             SELECT 0, notification_id || '/accepted', 'accepted', notification_id,
                    json_build_object('routes', routes, 'skipped', skipped)
               FROM counted
              UNION ALL${UNUSABLE}
              UNION ALL${ENDING}`,
      'record',
      parameters + 1,
    )}
    ${result}`,
  },
});

/** Recipients who get nothing on a channel, because the User Service has no usable answer about them. */
const UNUSABLE = `
             SELECT 1, slots.notification_id || '/' || ${routeRef('slots')} || '/0/skipped', 'route_skipped',
                    slots.notification_id,
                    json_build_object('route', ${routeRef('slots')}, 'channel', slots.channel, 'generation', 0,
                                      'reason', slots.last_error_classification)
               FROM slots
              WHERE slots.last_error_classification IS NOT NULL`;

/** More routes of notifications that are accepted in the same transaction. */
export const moreRoutes = ({ name, inserts, result, parameters }: Insertion): OutcomeStatement => ({
  quiet: { name, text: `${inserts}\n    ${result}` },
  telling: {
    name: `tell_${name}`,
    text: `${inserts}, ${tell(UNUSABLE, 'notification.records', parameters + 1)}\n    ${result}`,
  },
});

/** All routes of these notifications are there. $1 notifications, $2 kinds. */
export const END_ACCEPTANCE: OutcomeStatement = {
  telling: {
    name: 'tell_end_acceptance',
    text: `
    WITH tally AS (
      UPDATE notification.outcome_tallies
         SET open = open - 1
       WHERE notification_id = ANY ($1::text[]) AND open > 0
      RETURNING *
    ), ${tell(ENDING, 'notification.records', 2)}
    SELECT FROM tally WHERE false`,
  },
};

interface Refusal {
  name: string;
  /** `WITH refused AS (INSERT … RETURNING notification_id …)` and more. */
  inserts: string;
  /** More that only the telling statement has, as ", name AS (…)". */
  and?: string;
  result: string;
  parameters: number;
  /** SQL of the kind and of details, of columns of `refused`. */
  kind: string;
  details: string;
  /** Table that says of a notification what its event says. */
  subjects: string;
}

/** What ends an intent before there is a record of it. */
export const refusal = (of: Refusal): OutcomeStatement => ({
  quiet: { name: of.name, text: `${of.inserts}\n    ${of.result}` },
  telling: {
    name: `tell_${of.name}`,
    text: `${of.inserts}${of.and ?? ''}, ${tell(
      `
             SELECT 2, notification_id || '/end', ${of.kind}, notification_id, ${of.details}
               FROM refused`,
      of.subjects,
      of.parameters + 1,
    )}
    ${of.result}`,
  },
});

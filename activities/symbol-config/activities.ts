/**
 * Symbol configuration: taking snapshots of the enabled symbols, rounds of pushes, and how far each target has come. Owns the
 * SQL of `symbol_snapshots` and `symbol_targets`. Operators write `symbols` (client/symbol-config/symbols.ts).
 */
import type { Meter } from '@opentelemetry/api';
import { Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { SymbolMetadata, SymbolTarget, TargetKind } from '../../api/symbol-config/push.ts';
import { TARGET_KINDS, heldVersionIn, pushBodyOf, pushWebhookId } from '../../api/symbol-config/push.ts';
import type { PushResult, PushScope, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { MAX_NUMBER_ON_FROM } from '../../workflows/symbol-config/contract.ts';
import { withHeartbeats } from '../attempt.ts';
import type { GaugeRead } from '../metrics.ts';
import { countersOf, gaugesOfRows } from '../metrics.ts';
import type { DeliveryFailure, HttpCaller } from '../http/caller.ts';
import { deliver, isGone, retryWaitMs } from '../http/caller.ts';
import { columnsOf, query } from '../postgres.ts';

/** Pushes that are under way concurrently: all of a usual deployment, so that no target waits for one that hangs. */
const PARALLEL_PUSHES = 250;
/** Snapshots that are kept, to see what earlier versions held. */
const KEPT_SNAPSHOTS = 100;
/** Longest error that is kept, characters. */
const MAX_ERROR_LENGTH = 500;

export interface SymbolConfigResources {
  db: Pool;
  log: Logger;
  metrics: SymbolConfigMetrics;
  caller: HttpCaller;
  pushTimeoutMs: number;
  /** Delays after the first failed push to a target, the second in a row and so on; the last one repeats. */
  retryLadderMs: readonly number[];
  intervals: Pick<PushResult, 'reconciliationMs' | 'crawlMs'>;
}

export type SymbolConfigActivities = ReturnType<typeof createSymbolConfigActivities>;

export function createSymbolConfigActivities(resources: SymbolConfigResources) {
  const { db, log, metrics, caller, pushTimeoutMs, retryLadderMs, intervals } = resources;

  return {
    /**
     * Keeps the enabled symbols under the next version, unless they are those of the newest one. An empty list is
     * refused, as receivers would: it is more likely a mistake than meant.
     *
     * @param floor the newest version that the workflow or a target knows. When the database knows only older ones, as after its
     * restore, the list is numbered on from there, whether or not it has changed.
     */
    async takeSymbolSnapshot(floor: number): Promise<Pick<SymbolConfigState, 'version' | 'isListEmpty'>> {
      const [row] = await query<SnapshotTaken>(db, TAKE_SNAPSHOT, [KEPT_SNAPSHOTS, floor]);
      const { latest_version: latest, new_version: taken, enabled } = row!;
      if (enabled === 0) {
        log.error({ version: latest }, 'no symbol is enabled; an empty list is not pushed');
        metrics.symbolListEmpty({});
      }
      if (taken !== null) log.info({ version: taken, symbols: enabled }, 'symbol snapshot taken');
      return { version: taken ?? latest, isListEmpty: enabled === 0 };
    },

    /**
     * Pushes a version to all targets, or to those that are behind, at the same time. What becomes of one makes no
     * difference to the others, and is recorded as soon as it is known.
     */
    pushSymbols: (version: number, scope: PushScope): Promise<PushResult> =>
      withHeartbeats(async () => {
        const { cancellationSignal: stopped } = Context.current();
        const atMost = pLimit(PARALLEL_PUSHES);
        const values = [version, scope === 'all'];
        const targets = version === 0 ? [] : await query<TargetRow>(db, LOAD_TARGETS, values);
        const bodies = targets.length === 0 ? undefined : await bodiesOf(version);
        if (!bodies && targets.length > 0) return whereVersionIsLost(version, targets);
        const pushes = targets.map((target) =>
          atMost(() => push(version, target, bodies![target.kind], stopped)),
        );
        // All are over before one throws: what could not be recorded, or was cut off by a stop, is pushed again.
        await Promise.allSettled(pushes);
        const failures = (await Promise.all(pushes)).flatMap((failure) => failure ?? []);
        const failedTargets = failures.map(({ target }) => target);
        const held = failures.flatMap(({ heldVersion }) => heldVersion ?? []);
        const waits = failures.flatMap(({ retryMs }) => retryMs ?? []);
        metrics.symbolRound({ scope, result: failedTargets.length === 0 ? 'complete' : 'incomplete' });
        log.info({ version, scope, pushed: targets.length, failed: failedTargets.length }, 'symbols pushed');
        return {
          pushed: targets.length,
          failedTargets,
          ...intervals,
          ...(waits.length === 0 ? {} : { retryMs: Math.min(...waits) }),
          ...(held.length === 0 ? {} : { numberOnFrom: Math.max(...held) }),
        };
      }),
  };

  /** Each kind's body is written once, however many targets get it. */
  async function bodiesOf(version: number): Promise<Record<TargetRow['kind'], string> | undefined> {
    const [row] = await query<{ symbols: SymbolMetadata[] }>(db, LOAD_SNAPSHOT, [version]);
    if (!row) return undefined;
    const bodies = TARGET_KINDS.map((kind) => [kind, JSON.stringify(pushBodyOf(kind, version, row.symbols))]);
    return Object.fromEntries(bodies) as Record<TargetRow['kind'], string>;
  }

  /** The database was restored to a time before this version: the list gets a newer one with the next alarm. */
  function whereVersionIsLost(version: number, targets: readonly TargetRow[]): PushResult {
    log.warn({ version }, 'the database has lost a version of the symbols; numbering on from it');
    const failedTargets = targets.map(({ target }) => target);
    return { pushed: 0, failedTargets, retryMs: retryLadderMs[0]!, ...intervals };
  }

  /**
   * @param stopped ends the push when the process stops.
   * @returns nothing when the target acknowledged; else when to push again unless it is gone, and the newer version that it
   * says it holds.
   * @throws ApplicationFailure when that could not be recorded, and the reason of the stop.
   */
  async function push(
    version: number,
    target: TargetRow,
    body: string,
    stopped: AbortSignal,
  ): Promise<{ target: string; retryMs?: number; heldVersion?: number } | undefined> {
    const { kind, geo } = target;
    const failure = await deliver({
      ...{ method: 'PUT', url: target.url, body, stopped, caller },
      id: pushWebhookId(target.target, version),
      timeoutMs: pushTimeoutMs,
    });
    // It says nothing about the target.
    stopped.throwIfAborted();
    metrics.symbolPush({ kind, geo, result: failure?.kind ?? 'acknowledged' });
    if (!failure) {
      await query(db, RECORD_ACKNOWLEDGEMENT, [target.target, version]);
      return undefined;
    }
    const fields = { version, target: target.target, kind, geo, reason: failure.message };
    const failures = await recordFailure(db, target.target, version, failure);
    if (isGone(failure)) {
      log.error(fields, 'symbol target is gone; it is asked again only with pushes to all');
      return { target: target.target };
    }
    log.warn(fields, 'symbol push failed');
    const retryMs = retryWaitMs(failure, failures, retryLadderMs);
    const heldVersion = failure.status === 409 ? heldVersionIn(failure.body) : undefined;
    const isNewer = heldVersion !== undefined && heldVersion > version && heldVersion <= MAX_NUMBER_ON_FROM;
    return { target: target.target, retryMs, ...(isNewer ? { heldVersion } : {}) };
  }
}

/**
 * Gives an embedded stack something to push: enables these symbols when the table is empty.
 *
 * @returns how many were added.
 */
export async function addSampleSymbols(db: Pool, samples: readonly SymbolMetadata[]): Promise<number> {
  const added = await query(db, ADD_SAMPLE_SYMBOLS, [JSON.stringify(samples)]);
  return added.length;
}

const ADD_SAMPLE_SYMBOLS = {
  name: 'add_sample_symbols',
  text: `
    INSERT INTO notification.symbols (symbol, ticker, decimals, price_scale, is_enabled, updated_at)
    SELECT symbol, ticker, decimals, "priceScale", true, clock_timestamp()
      FROM jsonb_to_recordset($1::jsonb) AS sample (symbol text, ticker text, decimals int, "priceScale" bigint)
     WHERE NOT EXISTS (SELECT FROM notification.symbols)
    ON CONFLICT DO NOTHING
    RETURNING symbol`,
};

/** Of rows of notification.symbols; as a snapshot has them, so that the two can be compared. */
const LIST_OF_SYMBOLS = `jsonb_agg(
               jsonb_build_object('symbol', symbol, 'ticker', ticker, 'decimals', decimals, 'priceScale', price_scale)
               ORDER BY symbol COLLATE "C"
             )`;

interface SnapshotTaken {
  /** 0 without a snapshot. */
  latest_version: number;
  /** null when the newest snapshot has these symbols already, or no symbol is enabled. */
  new_version: number | null;
  enabled: number;
}

const TAKE_SNAPSHOT = {
  name: 'take_symbol_snapshot',
  text: `
    WITH enabled AS (
      SELECT count(*)::int AS count,
             ${LIST_OF_SYMBOLS} AS symbols
        FROM notification.symbols
       WHERE is_enabled
    ), latest AS (
      SELECT version, symbols
        FROM notification.symbol_snapshots
       ORDER BY version DESC
       LIMIT 1
    ), taken AS (
      INSERT INTO notification.symbol_snapshots (version, symbols, created_at)
      SELECT greatest((SELECT version FROM latest), $2::int, 0) + 1, symbols, clock_timestamp()
        FROM enabled
       WHERE count > 0
         AND (symbols IS DISTINCT FROM (SELECT symbols FROM latest) OR $2 > (SELECT version FROM latest))
      RETURNING version
    ), forgotten AS (
      DELETE FROM notification.symbol_snapshots
       WHERE version <= (SELECT version FROM latest) - $1::int
    )
    SELECT coalesce((SELECT version FROM latest), 0) AS latest_version,
           (SELECT version FROM taken) AS new_version,
           (SELECT count FROM enabled) AS enabled`,
};

const LOAD_SNAPSHOT = {
  name: 'load_symbol_snapshot',
  text: 'SELECT symbols FROM notification.symbol_snapshots WHERE version = $1',
};

// --- Targets --------------------------------------------------------------------------------------------------------

interface TargetRow {
  target: string;
  kind: TargetKind;
  geo: string;
  url: string;
}

/**
 * Makes the configured targets the registered ones. All processes push to what was registered last, so that they agree
 * while one with a new configuration takes over.
 *
 * @returns how many have not acknowledged any list yet: new ones, and changed ones, which count as new.
 */
export async function registerTargets(db: Pool, targets: readonly SymbolTarget[]): Promise<number> {
  await query(db, REGISTER_TARGETS, columnsOf(targets, 'name', 'kind', 'geo', 'url'));
  const [counted] = await query<{ unreached: number }>(db, COUNT_UNREACHED, []);
  return counted!.unreached;
}

/**
 * Of no meaning when a newer version was acknowledged meanwhile: rounds may overlap.
 *
 * @returns how many pushes to the target have failed in a row, at least 1.
 */
async function recordFailure(
  db: Pool,
  target: string,
  version: number,
  failure: DeliveryFailure,
): Promise<number> {
  const reason = failure.message.slice(0, MAX_ERROR_LENGTH);
  const values = [target, version, reason, isGone(failure)];
  const [row] = await query<{ consecutive_failures: number }>(db, RECORD_FAILURE, values);
  return row?.consecutive_failures ?? 1;
}

const REGISTER_TARGETS = {
  name: 'register_symbol_targets',
  text: `
    WITH wanted AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS wanted (target, kind, geo, url)
    ), removed AS (
      DELETE FROM notification.symbol_targets
       WHERE target NOT IN (SELECT target FROM wanted)
    )
    INSERT INTO notification.symbol_targets AS known (target, kind, geo, url)
    SELECT target, kind, geo, url FROM wanted
    ON CONFLICT (target) DO UPDATE
       SET kind = excluded.kind, geo = excluded.geo, url = excluded.url, acknowledged_version = NULL,
           acknowledged_at = NULL, last_error = NULL, last_error_at = NULL, consecutive_failures = 0, failing_since = NULL,
           is_gone = false
     WHERE (known.kind, known.geo, known.url) IS DISTINCT FROM (excluded.kind, excluded.geo, excluded.url)`,
};

const COUNT_UNREACHED = {
  name: 'count_unreached_symbol_targets',
  text: `
    SELECT count(*)::int AS unreached
      FROM notification.symbol_targets
     WHERE acknowledged_version IS NULL`,
};

/** $1 version, $2 whether all of them, and not only those that are behind. */
const LOAD_TARGETS = {
  name: 'load_symbol_targets',
  text: `
    SELECT target, kind, geo, url
      FROM notification.symbol_targets
     WHERE $2 OR NOT is_gone AND (acknowledged_version IS DISTINCT FROM $1 OR consecutive_failures > 0)
     ORDER BY target`,
};

/** $1 target, $2 version. */
const RECORD_ACKNOWLEDGEMENT = {
  name: 'record_symbol_acknowledgement',
  text: `
    UPDATE notification.symbol_targets
       SET acknowledged_version = $2, acknowledged_at = clock_timestamp(), consecutive_failures = 0, failing_since = NULL,
           is_gone = false
     WHERE target = $1 AND (acknowledged_version IS NULL OR acknowledged_version <= $2)`,
};

const RECORD_FAILURE = {
  name: 'record_symbol_failure',
  text: `
    UPDATE notification.symbol_targets
       SET last_error = $3, last_error_at = clock_timestamp(), consecutive_failures = consecutive_failures + 1,
           failing_since = coalesce(failing_since, clock_timestamp()), is_gone = $4
     WHERE target = $1 AND (acknowledged_version IS NULL OR acknowledged_version <= $2)
    RETURNING consecutive_failures`,
};

// --- Counters and gauges --------------------------------------------------------------------------------------------

/** Recording functions, one per counter. */
export type SymbolConfigMetrics = ReturnType<typeof createSymbolConfigMetrics>;

export function createSymbolConfigMetrics(meter: Meter) {
  const { counter } = countersOf(meter);
  return {
    /** `geo` is one of those that the targets are configured with. */
    symbolPush: counter<{
      kind: TargetKind;
      geo: string;
      result: 'acknowledged' | DeliveryFailure['kind'];
    }>('notification.symbols.pushes', 'Pushes of symbol configuration to a target'),
    symbolRound: counter<{ scope: PushScope; result: 'complete' | 'incomplete' }>(
      'notification.symbols.rounds',
      'Rounds of pushes, complete when every target acknowledged',
    ),
    symbolListEmpty: counter<Record<never, never>>(
      'notification.symbols.empty_lists',
      'Times that no symbol was enabled, and nothing new was pushed',
    ),
  };
}

export const symbolGauges = (db: Pool): GaugeRead[] => [
  gaugesOfRows(
    db,
    {
      'notification.symbols.targets_behind': {
        description: 'Targets without the newest list, or whose last push failed, by place',
      },
      'notification.symbols.oldest_failing_age_ms': {
        description: 'For how long every push to some target has failed, by place; 0 where none fails',
        unit: 'ms',
      },
    },
    READ_BEHIND,
  ),
];

const READ_BEHIND = {
  name: 'read_symbol_targets_behind',
  text: `
    SELECT geo,
           count(*) FILTER (WHERE consecutive_failures > 0 OR acknowledged_version IS DISTINCT FROM newest.version)::float8
             AS "notification.symbols.targets_behind",
           coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(failing_since)) * 1000), 0)::float8
             AS "notification.symbols.oldest_failing_age_ms"
      FROM notification.symbol_targets,
           (SELECT max(version) AS version FROM notification.symbol_snapshots) AS newest
     GROUP BY geo`,
};

/**
 * Symbol configuration: taking snapshots of the enabled symbols, and rounds of pushes. Owns the SQL of
 * `symbol_snapshots`. Operators write `symbols` (client/symbol-config/symbols.ts); targets.ts has the targets.
 */
import { Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { SymbolMetadata } from '../../api/symbol-config/push.ts';
import { TARGET_KINDS, heldVersionIn, pushBodyOf, pushWebhookId } from '../../api/symbol-config/push.ts';
import type { PushResult, PushScope, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { MAX_NUMBER_ON_FROM } from '../../workflows/symbol-config/contract.ts';
import type { SymbolConfigMetrics } from './metrics.ts';
import { withHeartbeats } from '../attempt.ts';
import type { HttpCaller } from '../http/caller.ts';
import { deliver, isGone, retryWaitMs } from '../http/caller.ts';
import { query } from '../postgres.ts';
import type { TargetRow } from './targets.ts';
import { LOAD_TARGETS, RECORD_ACKNOWLEDGEMENT, recordFailure } from './targets.ts';

/** Pushes that are under way concurrently: all of a usual deployment, so that no target waits for one that hangs. */
const PARALLEL_PUSHES = 250;
/** Snapshots that are kept, to see what earlier versions held. */
const KEPT_SNAPSHOTS = 100;

export interface SymbolConfigResources {
  db: Pool;
  log: Logger;
  metrics: SymbolConfigMetrics;
  caller: HttpCaller;
  symbols: {
    pushTimeoutMs: number;
    /** Delays after the first failed push to a target, the second in a row and so on; the last one repeats. */
    retryLadderMs: readonly number[];
    /** Between two pushes to all while there is no crawler, and between two looks at the table. */
    reconciliationMs: number;
    /** Between two alarms of the crawler; absent without one. */
    crawlMs?: number | undefined;
  };
}

export type SymbolConfigActivities = ReturnType<typeof createSymbolConfigActivities>;

export function createSymbolConfigActivities(resources: SymbolConfigResources) {
  const { db, log, metrics, caller, symbols: settings } = resources;
  const { retryLadderMs, reconciliationMs, crawlMs } = settings;
  const intervals = { reconciliationMs, ...(crawlMs === undefined ? {} : { crawlMs }) };

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
          atMost(async () => ({
            target: target.target,
            ...(await push(version, target, bodies![target.kind], stopped)),
          })),
        );
        const results = await Promise.allSettled(pushes);
        // What could not be recorded, or was cut off by a stop, is pushed again.
        const unrecorded = results.find((result) => result.status === 'rejected');
        if (unrecorded) throw unrecorded.reason;
        const made = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
        const failedTargets = made.flatMap(({ target, isAcknowledged }) => (isAcknowledged ? [] : [target]));
        const held = made.flatMap(({ heldVersion }) => heldVersion ?? []);
        const waits = made.flatMap(({ retryMs }) => retryMs ?? []);
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
   * @returns when to push again unless the target acknowledged or is gone, and the newer version that it says it holds.
   * @throws ApplicationFailure when that could not be recorded, and the reason of the stop.
   */
  async function push(
    version: number,
    target: TargetRow,
    body: string,
    stopped: AbortSignal,
  ): Promise<{ isAcknowledged: boolean; retryMs?: number; heldVersion?: number }> {
    const { kind, geo } = target;
    const failure = await deliver({
      ...{ method: 'PUT', url: target.url, body, stopped, caller },
      id: pushWebhookId(target.target, version),
      timeoutMs: settings.pushTimeoutMs,
    });
    // It says nothing about the target.
    stopped.throwIfAborted();
    metrics.symbolPush({ kind, geo, result: failure?.kind ?? 'acknowledged' });
    if (!failure) {
      await query(db, RECORD_ACKNOWLEDGEMENT, [target.target, version]);
      return { isAcknowledged: true };
    }
    const fields = { version, target: target.target, kind, geo, reason: failure.message };
    const failures = await recordFailure(db, target.target, version, failure);
    if (isGone(failure)) {
      log.error(fields, 'symbol target is gone; it is asked again only with pushes to all');
      return { isAcknowledged: false };
    }
    log.warn(fields, 'symbol push failed');
    const retryMs = retryWaitMs(failure, failures, retryLadderMs);
    const heldVersion = failure.status === 409 ? heldVersionIn(failure.body) : undefined;
    const isNewer = heldVersion !== undefined && heldVersion > version && heldVersion <= MAX_NUMBER_ON_FROM;
    return { isAcknowledged: false, retryMs, ...(isNewer ? { heldVersion } : {}) };
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

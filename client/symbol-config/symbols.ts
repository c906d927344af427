/** The symbols of the registry, and how far each target has come (workflows/symbol-config/contract.ts). */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import type { SymbolMetadata, TargetKind } from '../../api/symbol-config/push.ts';
import { symbolMetadataSchema } from '../../api/symbol-config/push.ts';
import type { SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import {
  SYMBOLS_CHANGED_UPDATE,
  SYMBOL_CONFIG_WORKFLOW_ID,
  SYMBOL_STATUS_QUERY,
} from '../../workflows/symbol-config/contract.ts';
import { runTransaction } from '../../api/postgres-transaction.ts';
import type { Requester } from '../actions.ts';
import { byAuthor } from '../actions.ts';
import { NotFoundError, NothingToDoError, OperationFailedError, checkedBy } from '../errors.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import type { Asked, WaitOptions } from '../temporal.ts';
import { ask, query, waitUntil } from '../temporal.ts';

const ASKED: Asked = {
  workflowId: SYMBOL_CONFIG_WORKFLOW_ID,
  limitMs: 30_000,
  ifSilent: 'what was changed is stored and goes out once one runs',
  ifNotRunning: 'a service with the role symbol-config starts it, and pushes what is stored',
};

interface SymbolRow extends SymbolMetadata {
  isEnabled: boolean;
  updatedAt: Date;
  /** Who changed it last; null for changes of programs that do not say. */
  changedBy: string | null;
}

export type SymbolView = Given<SymbolRow>;

interface TargetRow {
  target: string;
  kind: TargetKind;
  geo: string;
  /** Null when it never acknowledged one. */
  acknowledgedVersion: number | null;
  acknowledgedAt: Date | null;
  /** It has not the newest version, or its last push failed. */
  isBehind: boolean;
  consecutiveFailures: number;
  /** It said so (410) to the last push: it gets pushes to all only. Take it out of the file of targets. */
  isGone: boolean;
  /** Of the last push that failed, however long ago. */
  lastError: string | null;
  lastErrorAt: Date | null;
  /** Since when every push to it has failed. */
  failingSince: Date | null;
}

export type TargetView = Given<TargetRow>;

export interface SymbolStatus {
  /** Of the newest snapshot; 0 before the first. */
  version: number;
  targets: TargetView[];
  /** What the workflow says; absent when it did not answer within 3 s. */
  live?: SymbolConfigState;
  link?: string;
}

/** What became of a change: the version that has it, and who has that. */
export interface Spread {
  /** Every target has acknowledged it, in a round that was made for it. */
  isComplete: boolean;
  version: number;
  acknowledged: number;
  targets: number;
  /** Names of those without it. */
  behind: string[];
}

/** A change that was told to the workflow; pass it to `wait`. */
export interface ToldChange {
  change: number;
}

export function symbolOperations(resources: OperatorResources) {
  const { temporal, db } = resources;

  return {
    /** All symbols, by name. */
    async list(): Promise<SymbolView[]> {
      const { rows } = await db.query<SymbolRow>(LIST_SYMBOLS);
      return rows.map(given);
    },

    /**
     * Enables symbols and has them pushed. Any number is one change.
     *
     * @param requestedBy kept with the symbols.
     * @throws NotFoundError naming unknown symbols, NothingToDoError when all are enabled; nothing is changed then.
     * OperationFailedError when the workflow does not take the change within 30 s: it is stored, and goes out when the
     * workflow looks at the table next.
     */
    enable: (symbols: readonly string[], requestedBy = 'operator') => setEnabled(symbols, true, requestedBy),

    /** Disables symbols. Throws as `enable`, and OperationFailedError when none would be left: targets refuse that. */
    disable: (symbols: readonly string[], requestedBy = 'operator') =>
      setEnabled(symbols, false, requestedBy),

    /**
     * Adds a symbol, enabled, or changes its metadata and leaves it as it is.
     *
     * @throws OperationFailedError when a value is out of bounds, and as `enable`.
     */
    async set(metadata: SymbolMetadata, requestedBy = 'operator'): Promise<ToldChange> {
      const { symbol, ticker, decimals, priceScale } = checkedBy(symbolMetadataSchema, metadata);
      await db.query(SET_SYMBOL, [symbol, ticker, decimals, priceScale, requestedBy]);
      return tell();
    },

    /** Pushes the current list to every target now. @throws OperationFailedError as `enable`. */
    push: ({ requestedBy }: Requester = {}): Promise<ToldChange> =>
      byAuthor({ db }, { action: 'symbols push', requestedBy }, tell),

    async status(): Promise<SymbolStatus> {
      const [stored, live] = await Promise.all([storedStatus(), liveState()]);
      const link = linkField(resources, SYMBOL_CONFIG_WORKFLOW_ID);
      return { ...stored, ...given({ live }), ...link };
    },

    /**
     * Waits until every target has acknowledged the version with a change, or a newer one.
     *
     * @returns how far it has come, not complete when the time was up.
     */
    async wait({ change }: ToldChange, options: WaitOptions): Promise<Spread> {
      let spread: Spread = { isComplete: false, version: 0, acknowledged: 0, targets: 0, behind: [] };
      await waitUntil(async () => {
        // No answer, while its worker restarts, is no reason to stop waiting.
        const state = await liveState();
        if (!state) return undefined;
        const { targets } = await storedStatus();
        const behind = targets.filter(({ isBehind }) => isBehind).map(({ target }) => target);
        spread = {
          isComplete: behind.length === 0 && state.pushedChanges >= change,
          version: state.version,
          acknowledged: targets.length - behind.length,
          targets: targets.length,
          behind,
        };
        return spread.isComplete || undefined;
      }, options);
      return spread;
    },
  };

  async function setEnabled(
    symbols: readonly string[],
    isEnabled: boolean,
    requestedBy: string,
  ): Promise<ToldChange> {
    const { unknown, changed, left } = await runTransaction(db, async (client) => {
      // What is counted as left enabled stays so until this commits.
      await client.query('LOCK TABLE notification.symbols IN SHARE ROW EXCLUSIVE MODE');
      const { rows } = await client.query<ChangedRow>(SET_ENABLED, [symbols, isEnabled, requestedBy]);
      return rows[0]!;
    });
    if (unknown.length > 0) throw new NotFoundError(`there is no symbol ${unknown.join(', ')}`);
    if (left === 0) {
      throw new OperationFailedError('no symbol would be left enabled; targets refuse an empty list');
    }
    if (changed === 0) {
      throw new NothingToDoError(`${symbols.join(', ')}: ${isEnabled ? 'enabled' : 'disabled'} already`);
    }
    return tell();
  }

  function tell(): Promise<ToldChange> {
    return ask(temporal, ASKED, (handle) => handle.executeUpdate<ToldChange, []>(SYMBOLS_CHANGED_UPDATE));
  }

  function liveState(): Promise<SymbolConfigState | undefined> {
    return query(temporal, SYMBOL_CONFIG_WORKFLOW_ID, SYMBOL_STATUS_QUERY);
  }

  async function storedStatus(): Promise<Pick<SymbolStatus, 'version' | 'targets'>> {
    // Without targets one row, which has the version alone.
    const { rows } = await db.query<{ version: number } & (TargetRow | { target: null })>(LIST_TARGETS);
    const targets = rows.flatMap(({ version: _, ...row }) => (row.target === null ? [] : [given(row)]));
    return { version: rows[0]?.version ?? 0, targets };
  }
}

const LIST_SYMBOLS = `
  SELECT symbol, ticker, decimals, price_scale::float8 AS "priceScale", is_enabled AS "isEnabled",
         updated_at AS "updatedAt", changed_by AS "changedBy"
    FROM notification.symbols
   ORDER BY symbol COLLATE "C"`;

interface ChangedRow {
  unknown: string[];
  changed: number;
  /** Symbols that are enabled after the change. */
  left: number;
}

/** Changes all or none: not when one is unknown, and not when none would be left enabled. */
const SET_ENABLED = `
  WITH named AS (
    SELECT DISTINCT name FROM unnest($1::text[]) AS name
  ), unknown AS (
    SELECT name FROM named WHERE name NOT IN (SELECT symbol FROM notification.symbols)
  ), remaining AS (
    SELECT count(*)::int AS count
      FROM notification.symbols
     WHERE CASE WHEN symbol IN (SELECT name FROM named) THEN $2::boolean ELSE is_enabled END
  ), changed AS (
    UPDATE notification.symbols
       SET is_enabled = $2, updated_at = clock_timestamp(), changed_by = $3
     WHERE symbol IN (SELECT name FROM named) AND is_enabled <> $2
       AND NOT EXISTS (SELECT FROM unknown) AND (SELECT count FROM remaining) > 0
    RETURNING symbol
  )
  SELECT array(SELECT name FROM unknown ORDER BY name) AS unknown,
         (SELECT count(*)::int FROM changed) AS changed,
         (SELECT count FROM remaining) AS left`;

const SET_SYMBOL = `
  INSERT INTO notification.symbols (symbol, ticker, decimals, price_scale, is_enabled, updated_at, changed_by)
  VALUES ($1, $2, $3, $4, true, clock_timestamp(), $5)
  ON CONFLICT (symbol) DO UPDATE
     SET ticker = excluded.ticker, decimals = excluded.decimals, price_scale = excluded.price_scale,
         updated_at = excluded.updated_at, changed_by = excluded.changed_by`;

const LIST_TARGETS = `
  SELECT newest.version, target, kind, geo, acknowledged_version AS "acknowledgedVersion",
         acknowledged_at AS "acknowledgedAt", last_error AS "lastError", last_error_at AS "lastErrorAt",
         consecutive_failures AS "consecutiveFailures", failing_since AS "failingSince", is_gone AS "isGone",
         consecutive_failures > 0 OR acknowledged_version IS DISTINCT FROM newest.version AS "isBehind"
    FROM (SELECT coalesce(max(version), 0) AS version FROM notification.symbol_snapshots) AS newest
    LEFT JOIN notification.symbol_targets ON true
   ORDER BY geo, kind DESC, length(target), target`;

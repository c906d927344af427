/** A slot with the 77 stand-in targets and the service's role for them; what tests ask and change in it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { SymbolPush } from '../../api/symbol-config/push.ts';
import { startSymbolTargets } from '../../dev/stand-ins/symbol-config/targets.ts';
import type { CallerProof } from '../../client/webhook-proof.ts';
import { makeUpdate } from '../../client/temporal.ts';
import type { Service } from '../../workers/service.ts';
import type { SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import {
  SYMBOLS_CHANGED_UPDATE,
  SYMBOL_CONFIG_WORKFLOW_ID,
  SYMBOL_STATUS_QUERY,
} from '../../workflows/symbol-config/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { shared } from '../of-tests.ts';

interface TargetState {
  target: string;
  kind: string;
  acknowledged_version: number | null;
  last_error: string | null;
  last_error_at: Date | null;
  consecutive_failures: number;
}

/** @param given another owner's slot, which that owner releases. Default: one that is taken for it. @param proof what the targets ask of a caller. */
async function takeSymbolRegistry(given?: Slot, proof?: CallerProof) {
  const slot = given ?? (await takeSlot());
  const storeDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-symbols-'));
  const targets = await startSymbolTargets({ storeDir, ...(proof ? { proof } : {}) });
  const handle = slot.client.workflow.getHandle(SYMBOL_CONFIG_WORKFLOW_ID);
  const status = () => handle.query<SymbolConfigState>(SYMBOL_STATUS_QUERY);
  const { sampleSymbols } = targets;

  return {
    slot,
    targets,
    handle,
    status,
    /** The first sample of the stand-ins and those that tests add are enabled. */
    startService: (env?: Record<string, string>): Promise<Service> =>
      slot.startService(
        // A target that is slow on a busy machine does not count as failed.
        { NOTIFICATION_ROLES: 'symbol-config', NOTIFICATION_HTTP_TIMEOUT: '5m', ...env },
        { symbolTargets: targets.targets, sampleSymbols },
      ),
    /** Adds or enables symbols in the database alone. */
    async write(symbols: readonly string[], isEnabled = true): Promise<void> {
      await slot.db.query(
        `INSERT INTO notification.symbols
         SELECT symbol, symbol || '-PERP', 2, 100, $2, now() FROM unnest($1::text[]) AS symbol
         ON CONFLICT (symbol) DO UPDATE SET is_enabled = $2, updated_at = now()`,
        [symbols, isEnabled],
      );
    },
    tell: () =>
      makeUpdate(
        slot.client,
        () => handle.executeUpdate<{ change: number }, []>(SYMBOLS_CHANGED_UPDATE),
        120_000,
      ),
    async rows(): Promise<TargetState[]> {
      const { rows } = await slot.db.query<TargetState>(
        'SELECT * FROM notification.symbol_targets ORDER BY target',
      );
      return rows;
    },
    /** Waits until the workflow has pushed its newest list and every target holds it. */
    settled: (limitMs?: number): Promise<SymbolConfigState> =>
      eventually(
        'all targets to hold the newest list',
        async () => {
          const state = await status();
          const isHeld = targets.targets.every(({ name }) => targets.held(name).version === state.version);
          const isPushed = state.pushedChanges === state.toldChanges && state.failedTargets.length === 0;
          return isPushed && isHeld && state.alarm && state.version > 0 && state;
        },
        limitMs,
      ),
    async release(): Promise<void> {
      if (!given) await slot.release();
      await targets.stop();
      rmSync(storeDir, { recursive: true, force: true });
    },
  };
}

/** The registry of a file of tests, or of each test. */
export const { ofTests: registryOfTests, ofEachTest: registryOfEachTest } = shared(
  takeSymbolRegistry,
  (registry) => registry.release(),
);

/** The names in a list of either kind. */
export const namesIn = (symbols: SymbolPush['symbols'] = []): string[] =>
  symbols.map((symbol) => (typeof symbol === 'string' ? symbol : symbol.symbol));

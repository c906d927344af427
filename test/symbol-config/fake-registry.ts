/**
 * A registry in memory, for tests of the workflow: what its activities see of the database and of the targets.
 * activities.service.test.ts shows that the real activities answer in this way.
 */
import type { SymbolConfigActivities } from '../../activities/symbol-config/activities.ts';
import type { PushResult, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { SYMBOL_STATUS_QUERY } from '../../workflows/symbol-config/contract.ts';
import type { Fakes, WorkflowRun } from '../workflow-tier.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';

interface Settings {
  retryLadderMs: readonly number[];
  reconciliationMs: number;
  crawlMs?: number;
}

export class FakeRegistry {
  /** Enabled symbols. */
  readonly symbols = new Set(['BTC']);
  /** Lists by version. */
  readonly snapshots = new Map<number, string[]>();
  readonly targets: readonly string[];
  /** What each target holds. */
  readonly held = new Map<string, number>();
  readonly failing = new Set<string>();
  /** A round to one of these ends only when the test releases it. */
  readonly hanging = new Set<string>();
  readonly hangingRounds: ReturnType<typeof hold<PushResult>>[] = [];
  readonly pushes: { target: string; version: number; symbols: string[] }[] = [];
  private readonly lists = new Map<string, string[]>();
  /** Failed pushes in a row. */
  private readonly failures = new Map<string, number>();
  settings: Settings;

  constructor(settings: Partial<Settings> = {}, targets: readonly string[] = ['one', 'two', 'three']) {
    this.settings = { retryLadderMs: [1_000], reconciliationMs: 86_400_000, ...settings };
    this.targets = targets;
  }

  get newestVersion(): number {
    return Math.max(0, ...this.snapshots.keys());
  }

  /** What a target has acknowledged last. */
  symbolsAt(target: string): string[] {
    return this.lists.get(target) ?? [];
  }

  readonly activities = {
    takeSymbolSnapshot: (floor) => {
      const symbols = [...this.symbols].sort();
      const latest = this.newestVersion;
      const isNew = JSON.stringify(symbols) !== JSON.stringify(this.snapshots.get(latest)) || floor > latest;
      const version = isNew ? Math.max(latest, floor) + 1 : latest;
      this.snapshots.set(version, symbols);
      return { version, isListEmpty: false };
    },
    pushSymbols: (version, scope) => {
      const { retryLadderMs, ...intervals } = this.settings;
      const retryMsOf = (target: string) =>
        retryLadderMs[Math.min(this.failures.get(target)!, retryLadderMs.length) - 1]!;
      const symbols = this.snapshots.get(version);
      const isBehind = (target: string) => this.held.get(target) !== version || this.failures.has(target);
      const targets = this.targets.filter((target) => scope === 'all' || isBehind(target));
      if (!symbols) {
        return { pushed: 0, failedTargets: targets, retryMs: retryLadderMs[0]!, ...intervals };
      }
      const newer: number[] = [];
      const failedTargets = targets.filter((target) => {
        this.pushes.push({ target, version, symbols });
        const before = this.held.get(target) ?? 0;
        if (before > version) newer.push(before);
        const isFailed = this.failing.has(target) || before > version;
        if (isFailed) this.failures.set(target, (this.failures.get(target) ?? 0) + 1);
        else this.failures.delete(target);
        if (isFailed || this.hanging.has(target)) return isFailed;
        this.held.set(target, version);
        this.lists.set(target, symbols);
        return false;
      });
      const outcome: PushResult = {
        pushed: targets.length,
        failedTargets,
        ...intervals,
        ...(failedTargets.length > 0 ? { retryMs: Math.min(...failedTargets.map(retryMsOf)) } : {}),
        ...(newer.length > 0 ? { numberOnFrom: Math.max(...newer) } : {}),
      };
      if (!targets.some((target) => this.hanging.has(target))) return outcome;
      const round = hold<PushResult>();
      this.hangingRounds.push(round);
      return round;
    },
  } satisfies Fakes<SymbolConfigActivities>;
}

export type SymbolConfigRun = WorkflowRun<FakeRegistry['activities'], void>;

/** Starts the workflow and lets it make its first round. */
export async function beginSymbolConfig(registry: FakeRegistry): Promise<SymbolConfigRun> {
  const run = await startWorkflow('symbolConfig', [], { activities: registry.activities });
  await run.advance();
  return run;
}

export const statusOf = (run: SymbolConfigRun) => run.query<SymbolConfigState>(SYMBOL_STATUS_QUERY);

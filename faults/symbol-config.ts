/** Changes of symbols: in the end every target has what operators were told. ledger/symbol-config.ts judges. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { startSymbolTargets } from '../dev/stand-ins/symbol-config/targets.ts';
import type { SymbolChange } from './ledger/symbol-config.ts';
import { judgeSymbols } from './ledger/symbol-config.ts';
import type { Verdict } from './ledger/verdict.ts';
import type { Arena, Work } from './work.ts';

const CHANGES = 40;

export async function openSymbols(arena: Arena): Promise<Work> {
  const random = arena.random('symbol-config');
  const standIn = await startSymbolTargets({ storeDir: path.join(arena.dataDir, 'symbol-targets') });
  const targetsFile = path.join(arena.dataDir, 'symbol-targets.json');
  writeFileSync(targetsFile, JSON.stringify(standIn.targets));
  const { symbols } = arena.operator;
  const changes: SymbolChange[] = [];

  return {
    name: 'symbol-config',
    env: {
      NOTIFICATION_SYMBOL_TARGETS_FILE: targetsFile,
      NOTIFICATION_SYMBOL_RETRY_LADDER: '500ms,1s,2s',
      NOTIFICATION_HTTP_TIMEOUT: '3s',
    },
    planted: [],
    async load() {
      for await (const index of arena.spread(Math.min(CHANGES, arena.intents))) {
        const symbol = `SYM${random.between(1, 12)}`;
        const metadata = { symbol, ticker: `${symbol}-${index}`, decimals: index % 9, priceScale: 1 + index };
        // One that gets no answer is stored, and goes out with a later one.
        void arena.offer(() => change(metadata));
        if (random.chance(0.3)) {
          const { name } = random.oneOf(standIn.targets);
          standIn.fail({
            target: name,
            failure: random.oneOf([{ kind: 'status', status: 503 }, { kind: 'reset' }] as const),
            times: random.between(1, 4),
          });
        }
      }
    },
    async settle() {
      standIn.heal();
      if (arena.hasLost()) await repeatLost();
      const told = await arena.persist('symbols to be pushed', () => symbols.push());
      await arena.until('every target to have the newest symbols', async () => {
        const spread = await symbols.wait(told, { limitMs: 5_000, everyMs: 200 });
        if (spread.isComplete) return true;
        throw new Error(JSON.stringify(spread));
      });
    },
    async verify(): Promise<Verdict> {
      return judgeSymbols({ changes, targets: standIn.targets, requests: standIn.pushes });
    },
    stop: () => standIn.stop(),
  };

  /** What PostgreSQL may have forgotten is set again: the last change of each symbol that was acknowledged. */
  async function repeatLost(): Promise<void> {
    const last = new Map(
      changes
        .filter(({ acknowledgedAt }) => acknowledgedAt !== undefined)
        .map(({ values }) => [values.symbol, values] as const),
    );
    for (const values of last.values()) await arena.persist('a symbol to be set again', () => change(values));
  }

  async function change(values: SymbolChange['values']): Promise<void> {
    const account: SymbolChange = { values, beganAt: Date.now() };
    changes.push(account);
    await symbols.set(values);
    account.acknowledgedAt = Date.now();
  }
}

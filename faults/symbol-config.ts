/** Changes of symbols: in the end every target has what the registry has. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { startSymbolTargets } from '../dev/stand-ins/symbol-config/targets.ts';
import type { Arena, Verdict, Work } from './work.ts';
import { noVerdict } from './work.ts';

const CHANGES = 40;

export async function openSymbols(arena: Arena): Promise<Work> {
  const random = arena.random('symbol-config');
  const standIn = await startSymbolTargets({ storeDir: path.join(arena.dataDir, 'symbol-targets') });
  const targetsFile = path.join(arena.dataDir, 'symbol-targets.json');
  writeFileSync(targetsFile, JSON.stringify(standIn.targets));
  const { symbols } = arena.operator;
  let changes = 0;

  return {
    name: 'symbol-config',
    env: {
      NOTIFICATION_SYMBOL_TARGETS_FILE: targetsFile,
      NOTIFICATION_SYMBOL_RETRY_LADDER: '500ms,1s,2s',
      NOTIFICATION_SYMBOL_PUSH_TIMEOUT: '3s',
    },
    planted: [],
    async load() {
      for await (const index of arena.spread(Math.min(CHANGES, arena.intents))) {
        const symbol = `SYM${random.between(1, 12)}`;
        const metadata = { symbol, ticker: `${symbol}-${index}`, decimals: index % 9, priceScale: 1 + index };
        // One that gets no answer is stored, and goes out with a later one.
        void arena.offer(() => symbols.set(metadata));
        changes += 1;
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
      const told = await arena.persist('symbols to be pushed', () => symbols.push());
      await arena.until('every target to have the newest symbols', async () => {
        const spread = await symbols.wait(told, { limitMs: 5_000, everyMs: 200 });
        if (spread.isComplete) return true;
        throw new Error(JSON.stringify(spread));
      });
    },
    async verify(): Promise<Verdict> {
      const verdict = noVerdict();
      const { version } = await symbols.status();
      const enabled = await symbols.list({ isEnabled: true });
      const names = enabled.map(({ symbol }) => symbol).sort();
      for (const { name, kind } of standIn.targets) {
        const held = standIn.held(name);
        if (held?.version !== version)
          verdict.lost.push(`${name} has version ${held?.version} of ${version}`);
        const has = (held?.symbols ?? []).map((one) => (typeof one === 'string' ? one : one.symbol)).sort();
        if (has.join() !== names.join()) verdict.wrong.push(`${name} has other symbols`);
        if (kind !== 'price_collector') continue;
        for (const one of held?.symbols ?? []) {
          const row = enabled.find(({ symbol }) => typeof one !== 'string' && symbol === one.symbol);
          if (typeof one !== 'string' && row?.ticker !== one.ticker)
            verdict.wrong.push(`${name} has an old ${one.symbol}`);
        }
      }
      verdict.figures = { changes, version, targets: standIn.targets.length, pushes: standIn.pushes.length };
      return verdict;
    },
    stop: () => standIn.stop(),
  };
}

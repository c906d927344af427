/** The demo's part about symbols: the current list, pushed to every target through the operator client. */
import type { Operator } from '../../client/operator.ts';
import type { Spread } from '../../client/symbol-config/symbols.ts';

/** Far more than a push to stand-ins needs; a demo must end. */
const LIMIT_MS = 30_000;

interface SymbolResult extends Spread {
  /** From the request to the last acknowledgement that was seen. */
  afterMs: number;
}

export async function pushSymbols({ symbols }: Operator): Promise<SymbolResult> {
  const startedAt = Date.now();
  const told = await symbols.push();
  const spread = await symbols.wait(told, { limitMs: LIMIT_MS, everyMs: 20 });
  return { ...spread, afterMs: Date.now() - startedAt };
}

export function verdictOnSymbols({ version, acknowledged, targets, behind, afterMs }: SymbolResult): string {
  const missing = behind.length === 0 ? '' : `; behind: ${behind.join(', ')}`;
  return `Symbols, version ${version}: ${acknowledged} of ${targets} targets acknowledged after ${afterMs} ms${missing}.`;
}

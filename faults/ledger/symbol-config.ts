/**
 * The judge of symbol configuration: what operators were told of their changes against what each target holds. A target
 * holds the newest list that it has acknowledged. Changes with an unknown result may have been applied in any order.
 */
import { sameValue } from './comparison.ts';
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';

export interface SymbolValues {
  symbol: string;
  ticker: string;
  decimals: number;
  priceScale: number;
}

export interface SymbolChange {
  values: SymbolValues;
  beganAt: number;
  /** Absent when it was not acknowledged. */
  acknowledgedAt?: number;
}

/** One request that a target got. */
export interface TargetRequest {
  target: string;
  body: string;
  at: number;
  /** Answered with 2xx. */
  isAcknowledged: boolean;
}

export interface SymbolCase {
  changes: readonly SymbolChange[];
  targets: readonly { name: string; kind: string }[];
  requests: readonly TargetRequest[];
}

interface Push {
  version: number;
  symbols: unknown[];
}

export function judgeSymbols({ changes, targets, requests }: SymbolCase): Verdict {
  const verdict = noVerdict();
  const possible = new Map(
    [...Map.groupBy(changes, ({ values }) => values.symbol)].map(([symbol, list]) => [symbol, lastOf(list)]),
  );
  const acknowledged = new Set(
    changes.filter(({ acknowledgedAt }) => acknowledgedAt !== undefined).map(({ values }) => values.symbol),
  );
  const held = new Map<string, Push>();
  const bodies = new Map<string, string>();
  for (const { target, body, isAcknowledged } of requests.toSorted((a, b) => a.at - b.at)) {
    const push = JSON.parse(body) as Push;
    const same = bodies.get(`${target} ${push.version}`);
    if (same !== undefined && same !== body)
      verdict.altered.push(`${target} was sent version ${push.version} with two contents`);
    bodies.set(`${target} ${push.version}`, body);
    if (isAcknowledged && push.version >= (held.get(target)?.version ?? 0)) held.set(target, push);
  }
  const newest = Math.max(0, ...[...held.values()].map(({ version }) => version));
  const lists = new Set<string>();
  for (const { name, kind } of targets) judgeTarget(name, kind);
  if (lists.size > 1) verdict.wrong.push(`targets of one kind hold ${lists.size} different lists`);

  verdict.figures = {
    changes: changes.length,
    acknowledged: changes.filter(({ acknowledgedAt }) => acknowledgedAt !== undefined).length,
    version: newest,
    targets: targets.length,
    pushes: requests.length,
  };
  return verdict;

  function judgeTarget(name: string, kind: string): void {
    const has = held.get(name);
    if (!has || has.version < newest) {
      verdict.lost.push(`${name} has version ${has?.version ?? 'none'} of ${newest}`);
      return;
    }
    const isCollector = kind === 'price_collector';
    if (isCollector) lists.add(JSON.stringify(has.symbols));
    const names = new Set<string>();
    for (const one of has.symbols) {
      const symbol = typeof one === 'string' ? one : (one as SymbolValues).symbol;
      if (names.has(symbol)) verdict.doubled.push(`${name} has ${symbol} twice`);
      names.add(symbol);
      if ((typeof one === 'string') === isCollector)
        verdict.misdirected.push(`${name} has the list of the other kind`);
      const values = possible.get(symbol);
      if (!values) verdict.wrong.push(`${name} has ${symbol}, which no change set`);
      else if (isCollector && !values.some((value) => sameValue(value, one)))
        verdict.altered.push(`${name} has ${JSON.stringify(one)}, not ${JSON.stringify(values)}`);
    }
    for (const symbol of acknowledged) if (!names.has(symbol)) verdict.lost.push(`${name} has no ${symbol}`);
  }
}

/** The values that a symbol can have in the end: those of changes after which no acknowledged one has begun. */
function lastOf(changes: readonly SymbolChange[]): SymbolValues[] {
  return changes
    .filter(
      ({ acknowledgedAt }) =>
        acknowledgedAt === undefined ||
        !changes.some((later) => later.acknowledgedAt !== undefined && later.beganAt > acknowledgedAt),
    )
    .map(({ values }) => values);
}

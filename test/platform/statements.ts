/** The named statements of the product, as its modules have them, and how PostgreSQL would run them. */
import { globSync, readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Pool } from 'pg';
import type { Statement } from '../../activities/postgres.ts';
import type { Expiring } from '../../activities/retention.ts';
import { deletionOf, overdueOf } from '../../activities/retention.ts';

const ROOT = path.join(import.meta.dirname, '../..');
/** Rooms whose code runs in the service. */
const ROOMS = '{activities,api,migrations,workers}/**/*.ts';
const CONSTANT = /^(?:export )?const ([A-Z][A-Z0-9_]*)\b/gm;
const HAS_STATEMENTS = /\btext: ?['`\n]|: Expiring\b|operationItems\(|relayedTable/;
const QUERY = '?statements';

/** Every named statement by its name. Modules keep theirs to themselves, so that they are loaded with one export more. */
export async function allStatements(): Promise<Map<string, Statement>> {
  const found = new Map<string, Statement>();
  const hooks = registerHooks({
    load(url, context, nextLoad) {
      if (!url.endsWith(QUERY)) return nextLoad(url, context);
      const source = readFileSync(fileURLToPath(url), 'utf8');
      const names = [...source.matchAll(CONSTANT)].map(([, name]) => name);
      return {
        format: 'module-typescript',
        source: `${source}\nexport const $constants = [${names.join(', ')}];\n`,
        shortCircuit: true,
      };
    },
  });
  try {
    for (const { file, source } of sourcesOf(ROOMS)) {
      if (!HAS_STATEMENTS.test(source)) continue;
      const module = (await import(pathToFileURL(file).href + QUERY)) as { $constants: unknown[] };
      for (const statement of statementsIn(module.$constants)) found.set(statement.name, statement);
    }
  } finally {
    hooks.deregister();
  }
  return found;
}

const sourcesOf = (pattern: string) =>
  globSync(pattern, { cwd: ROOT }).map((name) => {
    const file = path.join(ROOT, name);
    return { name, file, source: readFileSync(file, 'utf8') };
  });

/** Names in the sources that are given to a statement, as far as they are literal: `allStatements` must find them. */
export const namesInSources = (): string[] =>
  sourcesOf(ROOMS).flatMap(({ source }) =>
    [...source.matchAll(/\bname: (['"`])([a-z_]+)\1,\s+text:/g)].map(([, , name]) => name!),
  );

/**
 * Statements that the service runs without a name, or past `query` and `run`, which refuse late attempts; in excerpts. Those of
 * transactions and of its start are few and known.
 */
export const unnamedQueries = (): string[] =>
  sourcesOf('{activities,workers}/**/*.ts').flatMap(({ name, source }) =>
    [...source.matchAll(QUERY_CALL)].flatMap(([, text]) => (KNOWN.test(text!) ? [] : [`${name}: ${text}`])),
  );

const QUERY_CALL =
  /\.query(?:<[^()]*>)?\(\s*(?!\w+\.query\b|\{ \.\.\.statement, values \})(['"`][^'"`]*|[A-Z][A-Z_]+\b|\{)/g;
/** The last one is a query of a workflow. */
const KNOWN =
  /^'(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT item|RELEASE SAVEPOINT item|ROLLBACK TO SAVEPOINT item|SELECT 1)$/;

function* statementsIn(value: unknown): Generator<Statement> {
  if (typeof value !== 'object' || value === null) return;
  const { name, text } = value as Partial<Statement>;
  if (typeof name === 'string' && typeof text === 'string') {
    yield { name, text };
    return;
  }
  if ('table' in value && 'since' in value) {
    const expiring = value as Expiring;
    yield deletionOf(expiring);
    if (!expiring.parent) yield overdueOf(expiring);
    return;
  }
  if (!Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype) return;
  for (const part of Object.values(value)) yield* statementsIn(part);
}

/** What of EXPLAIN (FORMAT JSON) is looked at. */
interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Join Type'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'Recheck Cond'?: string;
  Filter?: string;
  Plans?: Plan[];
}

/** Steps between a LIMIT and a scan that hand on each row as they get it. */
const HANDS_ON = new Set(['Limit', 'LockRows', 'Result', 'Subquery Scan']);

/**
 * How PostgreSQL runs a statement whatever its values are.
 *
 * A limit is given, because a plan for any limit takes it for a tenth of the rows; PostgreSQL compares such a plan with
 * that of the values, and stays with the latter. It is as small beside the tables here as a batch is beside large ones.
 */
export async function planOf(db: Pool, { text }: Statement): Promise<Plan> {
  const limited = text.replaceAll(/\bLIMIT \$\d+/g, 'LIMIT 100');
  const { rows } = await db.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
    `EXPLAIN (GENERIC_PLAN, COSTS OFF, FORMAT JSON) ${limited}`,
  );
  return rows[0]!['QUERY PLAN'][0].Plan;
}

/**
 * In which ways a plan takes longer the larger these tables are. Looking a key up does not, and neither does a range that ends
 * with a limit.
 *
 * @param shared columns that are no keys, because many rows may have one value.
 */
export function unboundedParts(
  plan: Plan,
  large: ReadonlySet<string>,
  shared: readonly string[] = [],
): string[] {
  const found: string[] = [];
  visit(plan, []);
  return found;

  /** @param above the nodes from the root on. */
  function visit(node: Plan, above: readonly Plan[]): void {
    const type = node['Node Type'];
    const table = [node, ...above.toReversed()].find((one) => one['Relation Name'])?.['Relation Name'] ?? '';
    const isLimited = above.some((one) => one['Node Type'] === 'Limit');
    const next = above.findLast((one) => one['Node Type'] === 'Limit' || !HANDS_ON.has(one['Node Type']));
    const isForLimit = next?.['Node Type'] === 'Limit';
    if (large.has(table)) {
      const problem = problemOf(node, isLimited, isForLimit);
      if (problem !== undefined) found.push(`${problem} ${node['Index Name'] ?? table}`);
    }
    if (type === 'Sort' && isForLimit && rangesIn(node).some((name) => large.has(name))) {
      found.push('sorts all that it finds, for a few');
    }
    if (isLimited && /^(Anti|Semi)$/.test(node['Join Type'] ?? ''))
      found.push('goes through what it joins, for a few');
    for (const part of node.Plans ?? []) visit(part, [...above, node]);
  }

  function problemOf(node: Plan, isLimited: boolean, isForLimit: boolean): string | undefined {
    if (node['Node Type'] === 'Seq Scan') return 'reads all of';
    if (!/Index (Only )?Scan/.test(node['Node Type'])) return undefined;
    const condition = node['Index Cond'];
    if (condition === undefined) return isForLimit && node.Filter === undefined ? undefined : 'walks all of';
    return isLimited || hasKey(condition) ? undefined : 'walks a range without a limit of';
  }

  /** Tables below a node that are read by a range, and not by a key, up to the next limit. */
  function rangesIn(node: Plan): string[] {
    const own = node['Relation Name'];
    const condition = node['Index Cond'] ?? node['Recheck Cond'] ?? '';
    const isRange = own !== undefined && node['Node Type'].endsWith('Scan') && !hasKey(condition);
    const below = (node.Plans ?? []).filter((part) => part['Node Type'] !== 'Limit');
    return [...(isRange ? [own] : []), ...below.flatMap(rangesIn)];
  }

  function hasKey(condition: string): boolean {
    const columns = [...condition.matchAll(/(\w+)[")]*(?:::\w+)? = /g)].map(([, column]) => column!);
    return columns.some((column) => !shared.includes(column));
  }
}

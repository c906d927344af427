/**
 * Mutants made by program: every condition, call, comparison and conjunct of a source, of its SQL and of its Lua is one place.
 * An id names the file, the declaration, the kind of change, and which of its kind in the declaration it is.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import path from 'node:path';
import ts from 'typescript';
import type { Mutant, Suite, Tier } from './mutant.ts';
import { nodesOf } from './places.ts';

const ROOT = path.dirname(import.meta.dirname);
/** Those that a test notices: id, tier, suite, part of a title. Or those that none has to notice: id, `survives`, reason. */
const LIST = path.join(import.meta.dirname, 'generated.txt');
const ROOMS = '{workflows,activities,client}/**/*.ts';

/** Replaces the text from `start` to `end`. */
interface Edit {
  start: number;
  end: number;
  text: string;
}

interface MadeChange extends Edit {
  kind: keyof typeof CHANGES;
}

/** What the product does then. */
export const CHANGES = {
  'negated-condition': 'a condition is negated',
  'omitted-call': 'a call is left out',
  'off-by-one': 'a bound is off by one',
  'omitted-conjunct': 'a part of a condition is taken as met',
  'sql-off-by-one': 'a bound of a statement is off by one',
  'sql-omitted-conjunct': 'a part of a condition of a statement is taken as met',
  'lua-negated-condition': 'a condition of a script is negated',
  'lua-off-by-one': 'a bound of a script is off by one',
  'lua-omitted-line': 'a line of a script is left out',
} as const;

/** What each id changes, in the order of the text. */
export function editsOf(file: string, source: string): Map<string, Edit> {
  const edits = new Map<string, Edit>();
  const counts = new Map<string, number>();
  for (const { node, declaration } of nodesOf(source)) {
    for (const { kind, ...edit } of changesOf(node, source)) {
      const place = `${file}:${declaration}:${kind}`;
      const count = (counts.get(place) ?? 0) + 1;
      counts.set(place, count);
      edits.set(`${place}-${count}`, edit);
    }
  }
  return edits;
}

const fileOf = (id: string): string => id.split(':')[0]!;

export function generatedMutant(id: string, suite: Suite, survives?: string): Mutant {
  const file = fileOf(id);
  const kind = id.replace(/^.*:|-\d+$/g, '') as MadeChange['kind'];
  const change = (source: string): string => {
    const edit = editsOf(file, source).get(id);
    if (edit === undefined)
      throw new Error(`${id}: ${file} has no such place: mutants/generated.txt is out of date`);
    return source.slice(0, edit.start) + edit.text + source.slice(edit.end);
  };
  return {
    ...{ id, file, change, suite, wrong: 'generated', what: CHANGES[kind] },
    ...(survives === undefined ? {} : { survives }),
  };
}

/** The mutants of the list that a test has to notice. */
export const readGenerated = (): Mutant[] =>
  linesOfList()
    .filter(([, tier]) => tier !== 'survives')
    .map(([id, tier, name, ...title]) =>
      generatedMutant(id!, {
        tier: tier as Tier,
        file: `test/${name}.${tier}.test.ts`,
        ...(title.length === 0 ? {} : { test: title.join(' ') }),
      }),
    );

/** @returns ids of places that the list does not have, in an order that goes round the files and stays as it is. */
export async function unlistedPlaces(isWanted: (id: string) => boolean): Promise<string[]> {
  const listed = new Set(linesOfList().map(([id]) => id));
  const ids: string[] = [];
  for await (const file of glob(ROOMS, { cwd: ROOT })) {
    if (file.includes('generated/')) continue;
    const ofFile = [...editsOf(file, readFileSync(path.join(ROOT, file), 'utf8')).keys()];
    // Elsewhere, what is decided in TypeScript has mutants that are written by hand.
    ids.push(...ofFile.filter((id) => file.startsWith('workflows/') || /:(sql|lua)-/.test(id)));
  }
  const hashOf = (id: string) => createHash('sha256').update(id).digest('hex');
  const byFile = Map.groupBy(ids.filter(isWanted), fileOf);
  const ranked = [...byFile.values()].flatMap((ofFile) =>
    ofFile
      .map((id) => ({ id, hash: hashOf(id) }))
      .sort((one, other) => (one.hash < other.hash ? -1 : 1))
      .map(({ id, hash }, round) => ({ id, rank: `${String(round).padStart(4, '0')} ${hash}` })),
  );
  return ranked
    .sort((one, other) => (one.rank < other.rank ? -1 : 1))
    .map(({ id }) => id)
    .filter((id) => !listed.has(id));
}

/** The literal texts of the statement or script that a place is in, as far as they are long enough to know it by. */
export function textsAround(id: string, source: string): string[] {
  const { start, end } = editsOf(fileOf(id), source).get(id)!;
  const literal = nodesOf(source).findLast(
    ({ node }) => isText(node) && node.getStart() <= start && node.getEnd() >= end,
  );
  const pieces =
    literal && ts.isTemplateExpression(literal.node)
      ? [literal.node.head, ...literal.node.templateSpans.map((span) => span.literal)]
      : [literal!.node as ts.StringLiteralLike];
  return pieces.map(({ text }) => text).filter((text) => text.length > 20);
}

const linesOfList = (): string[][] =>
  readFileSync(LIST, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split(' '));

/** An inclusive bound becomes exclusive and the other way round. */
const OTHER_BOUNDS = new Map([
  ['<', '<='],
  ['<=', '<'],
  ['>', '>='],
  ['>=', '>'],
]);

function changesOf(node: ts.Node, source: string): MadeChange[] {
  if (ts.isIfStatement(node)) return [negated(node.expression)];
  if (ts.isConditionalExpression(node)) return [negated(node.condition)];
  if (ts.isExpressionStatement(node))
    return isCall(node.expression) ? [{ kind: 'omitted-call', ...extentOf(node), text: ';' }] : [];
  if (ts.isBinaryExpression(node)) {
    const other = OTHER_BOUNDS.get(node.operatorToken.getText());
    if (other !== undefined) return [{ kind: 'off-by-one', ...extentOf(node.operatorToken), text: other }];
    if (node.operatorToken.kind === ts.SyntaxKind.AmpersandAmpersandToken)
      return [node.left, node.right]
        .filter(isPartOfCondition)
        .map((part) => ({ kind: 'omitted-conjunct', ...extentOf(part), text: 'true' }));
  }
  if (isText(node)) {
    const text = withoutSubstitutions(node, source);
    const changes = LUA.test(text) ? changesOfLua(text) : SQL.test(text) ? changesOfSql(text) : [];
    const from = node.getStart();
    return changes.map(({ kind, start, end, text: changed }) => ({
      kind,
      start: from + start,
      end: from + end,
      // A substitution stands in the source only.
      text: changed.replace('$&', () => source.slice(from + start, from + end)),
    }));
  }
  return [];
}

const isText = (node: ts.Node) => ts.isStringLiteralLike(node) || ts.isTemplateExpression(node);

const extentOf = (node: ts.Node) => ({ start: node.getStart(), end: node.getEnd() });

const negated = (condition: ts.Expression): MadeChange => ({
  kind: 'negated-condition',
  ...extentOf(condition),
  text: `!(${condition.getText()})`,
});

/** What is logged is no behavior. */
function isCall(expression: ts.Expression): boolean {
  if (ts.isAwaitExpression(expression) || ts.isVoidExpression(expression))
    return isCall(expression.expression);
  return ts.isCallExpression(expression) && !/^log(ger)?\b|\.log\b/.test(expression.expression.getText());
}

/** The chain `a && b && c` is `(a && b) && c`: each part once. What a chain is worth is no part of a condition. */
const isPartOfCondition = (part: ts.Expression): boolean =>
  !(ts.isBinaryExpression(part) && part.operatorToken.kind === ts.SyntaxKind.AmpersandAmpersandToken) &&
  !ts.isTemplateExpression(part) &&
  !ts.isStringLiteral(part) &&
  !ts.isObjectLiteralExpression(part) &&
  !ts.isArrayLiteralExpression(part);

// --- SQL and Lua in literals

const LUA = /\bredis\.p?call\b|\blocal /;
const SQL = /\b(SELECT|INSERT|UPDATE|DELETE|WHERE|JOIN)\b/;

/** As long as the literal. A substitution looks like a name. */
function withoutSubstitutions(node: ts.Node, source: string): string {
  const [start, end] = [node.getStart(), node.getEnd()];
  let text = source.slice(start, end);
  if (!ts.isTemplateExpression(node)) return text;
  for (const { expression } of node.templateSpans) {
    const from = expression.getFullStart() - 2 - start;
    const to = expression.getEnd() + 1 - start;
    text = text.slice(0, from) + 'x'.repeat(to - from) + text.slice(to);
  }
  return text;
}

const CONDITION_OF_LUA = /^(\s*(?:else)?if )(.+?)( then\b)/;
const STATEMENT_OF_LUA = /^\s*(redis\.p?call\(.*\)|[\w.]+(\[.*?\])? = .*|if .* end)$/;

function changesOfLua(text: string): MadeChange[] {
  const changes: MadeChange[] = [];
  let at = 0;
  for (const line of text.split('\n')) {
    const begin = at + line.length - line.trimStart().length;
    const code = line.replace(/^\W*--.*|`$/, '');
    const condition = CONDITION_OF_LUA.exec(code);
    if (condition) {
      const start = at + condition[1]!.length;
      changes.push({
        kind: 'lua-negated-condition',
        start,
        end: start + condition[2]!.length,
        text: 'not ($&)',
      });
    }
    for (const { index, 0: found, 1: operator } of code.matchAll(/ ([<>]=?) /g)) {
      const start = at + index + 1;
      changes.push({
        kind: 'lua-off-by-one',
        start,
        end: start + found.length - 2,
        text: OTHER_BOUNDS.get(operator!)!,
      });
    }
    if (STATEMENT_OF_LUA.test(code))
      changes.push({ kind: 'lua-omitted-line', start: begin, end: at + code.length, text: '' });
    at += line.length + 1;
  }
  return changes;
}

const TOKENS = /'(?:[^']|'')*'|"[^"]*"|--.*|[A-Za-z_][\w]*|\$\d+|[<>=!@|&#~?*+\-/]+|\S/g;
/** Words that end a condition, or begin one. */
const BORDERS = new Set(
  `SELECT FROM WHERE ON HAVING GROUP ORDER LIMIT OFFSET FETCH RETURNING FOR UNION EXCEPT INTERSECT WINDOW SET JOIN LEFT RIGHT FULL
  INNER CROSS USING DO CASE WHEN THEN ELSE END AS OR , ;`.split(/\s+/),
);
const BEGINNINGS = new Set(['WHERE', 'ON', 'HAVING']);

interface Part {
  start: number;
  end: number;
}
/** Between two borders on one level of parentheses. */
interface Segment {
  opening: string;
  isBetween: boolean;
  parts: Part[];
}

const NOTHING: Part = { start: 0, end: 0 };
const segmentAfter = (opening: string): Segment => ({ opening, isBetween: false, parts: [NOTHING] });

/** A part that is taken as met stays in the statement: PostgreSQL learns the types of parameters from it. */
function changesOfSql(literal: string): MadeChange[] {
  const changes: MadeChange[] = [];
  const levels = [segmentAfter('')];
  let before = '';
  for (const { 0: word, index } of literal.matchAll(TOKENS)) {
    if (word.startsWith('--') || word === literal[0]) continue;
    const place = { start: index, end: index + word.length };
    const other = OTHER_BOUNDS.get(word);
    if (other !== undefined) changes.push({ kind: 'sql-off-by-one', ...place, text: other });
    if (word === ')' || word === ']') close(levels.pop()!, word);
    // A fragment may close what another one opens.
    if (levels.length === 0) levels.push(segmentAfter(''));
    const level = levels.at(-1)!;
    const isBorder = BORDERS.has(word) && !(before === 'DISTINCT' && (word === 'FROM' || word === 'ON'));
    const isSplit = word === 'AND' && !level.isBetween;
    if (isBorder) {
      close(level, word);
      levels[levels.length - 1] = segmentAfter(word);
    } else if (isSplit) {
      level.parts.push(NOTHING);
    }
    // A word within parentheses belongs to the parts around them, too.
    for (const { parts } of isBorder || isSplit ? levels.slice(0, -1) : levels) {
      const { start, end } = parts.at(-1)!;
      parts[parts.length - 1] = { start: end === 0 ? place.start : start, end: place.end };
    }
    if (word === 'BETWEEN' || word === 'AND') level.isBetween = word === 'BETWEEN';
    if (word === '(' || word === '[') levels.push(segmentAfter(''));
    before = word;
  }
  for (const level of levels.reverse()) close(level, '');
  return changes.sort((one, other) => one.start - other.start);

  function close({ opening, parts }: Segment, border: string): void {
    if (parts.length === 1 && (!BEGINNINGS.has(opening) || border === 'OR')) return;
    for (const part of parts) {
      const text = literal.slice(part.start, part.end);
      if (text !== '' && text !== 'true' && !text.startsWith('CONFLICT'))
        changes.push({ kind: 'sql-omitted-conjunct', ...part, text: '($& OR true)' });
    }
  }
}

/**
 * Every place of a source that a mutant made by program can change: conditions, calls, comparisons and conjuncts, also of SQL, and
 * lines of Lua. An id names the file, the declaration, the kind of change, and which of its kind in the declaration it is.
 */
import ts from 'typescript';
import { nodesOf } from './places.ts';

/** Replaces the text from `start` to `end`. */
interface Edit {
  start: number;
  end: number;
  text: string;
}

interface Change extends Edit {
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

/** An inclusive bound becomes exclusive and the other way round. */
const OTHER_BOUNDS = new Map([
  ['<', '<='],
  ['<=', '<'],
  ['>', '>='],
  ['>=', '>'],
]);

function changesOf(node: ts.Node, source: string): Change[] {
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

export const isText = (node: ts.Node) => ts.isStringLiteralLike(node) || ts.isTemplateExpression(node);

const extentOf = (node: ts.Node) => ({ start: node.getStart(), end: node.getEnd() });

const negated = (condition: ts.Expression): Change => ({
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

function changesOfLua(text: string): Change[] {
  const changes: Change[] = [];
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
function changesOfSql(literal: string): Change[] {
  const changes: Change[] = [];
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

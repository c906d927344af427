/** Places in sources by their syntax: a declaration, and a node in it. What stands around them may change. */
import ts from 'typescript';

/** One change of a source. Tells its place by a node of TypeScript, or by a text of SQL, Lua or another language. */
export interface Change {
  /** The declaration, with the names of those around it: `createSuites.run`. In other languages, a text before the place. */
  in: string;
  /** A node of the declaration by its label, and which of this label unless it is the only one: `IfStatement 2`. */
  node?: string;
  /** A text that the declaration has once. Blank space of any length is one blank. */
  text?: string;
  /** Nothing leaves it out. `$&` is what stands there; `$<left>` a part of the node by its name, `$<arguments.0>` one of several. */
  replace: string;
}

/** @throws Error that tells what is not found. */
export function changed(file: string, source: string, change: Change): string {
  const place = change.node === undefined ? placeOfText(file, source, change) : placeOfNode(source, change);
  const { start, end, partOf } = place;
  const text = change.replace.replace(/\$(?:&|<([\w.]+)>)/g, (_, part?: string) =>
    part === undefined ? source.slice(start, end) : partOf(part),
  );
  // A node that is left out of a list takes its comma along.
  const comma =
    change.node !== undefined && text === '' ? (/^\s*,/.exec(source.slice(end))?.[0].length ?? 0) : 0;
  return source.slice(0, start) + text + source.slice(end + comma);
}

interface Place {
  start: number;
  end: number;
  partOf: (name: string) => string;
}

function placeOfNode(source: string, { in: declaration, node: wanted }: Change): Place {
  const [, label, number] = /^(.+?)(?: (\d+))?$/.exec(wanted!)!;
  const nodes = nodesOf(source).filter((one) => one.declaration === declaration);
  if (nodes.length === 0) throw new Error(`there is no declaration '${declaration}'`);
  const found = nodes.filter(({ node }) => labelOf(node) === label);
  const node = number === undefined && found.length > 1 ? undefined : found[Number(number ?? 1) - 1]?.node;
  if (node === undefined)
    throw new Error(`'${declaration}' has ${found.length} nodes '${label}', wanted is '${wanted}'`);
  const partOf = (name: string): string => {
    const part = name
      .split('.')
      .reduce<unknown>((whole, key) => (whole as Record<string, unknown>)[key], node);
    return (part as ts.Node).getText();
  };
  return { start: node.getStart(), end: node.getEnd(), partOf };
}

function placeOfText(file: string, source: string, { in: declaration, text }: Change): Place {
  const isTypeScript = file.endsWith('.ts');
  const extent = isTypeScript
    ? extentOf(source, declaration)
    : { start: source.indexOf(declaration), end: source.length };
  if (!extent || extent.start < 0) throw new Error(`there is no declaration '${declaration}'`);
  const pattern = text!.trim().split(/\s+/).map(patternOf).join('\\s+');
  const found = [...source.slice(extent.start, extent.end).matchAll(new RegExp(pattern, 'g'))];
  if (found.length === 0 || (isTypeScript && found.length > 1))
    throw new Error(`'${declaration}' has the text '${text}' ${found.length} times`);
  const start = extent.start + found[0]!.index;
  return { start, end: start + found[0]![0].length, partOf: () => '' };
}

/** What a node is called: a call `query()`, a property `limit:`, an operation by its operator, others as TypeScript calls their kind. */
function labelOf(node: ts.Node): string {
  if (ts.isBinaryExpression(node)) return node.operatorToken.getText();
  if (ts.isCallExpression(node)) return `${/\w*$/.exec(node.expression.getText())![0]}()`;
  if (ts.isPropertyAssignment(node) || ts.isShorthandPropertyAssignment(node))
    return `${node.name.getText()}:`;
  return KINDS.get(node.kind)!;
}

/** The nodes of a declaration as `node` of a change names them, each with the text that it has. */
export function* describedNodes(source: string, declaration: string): Generator<string> {
  const counts = new Map<string, number>();
  for (const { node, declaration: its } of nodesOf(source)) {
    if (its !== declaration) continue;
    const label = labelOf(node);
    counts.set(label, (counts.get(label) ?? 0) + 1);
    yield `${label} ${counts.get(label)}`.padEnd(30) + node.getText().replaceAll(/\s+/g, ' ').slice(0, 90);
  }
}

/** Some kinds have a second name, which comes later. */
const KINDS = new Map(
  Object.entries(ts.SyntaxKind)
    .filter(([, kind]) => typeof kind === 'number')
    .map(([name, kind]) => [kind as ts.SyntaxKind, name] as const)
    .reverse(),
);

/** Matches this text alone. */
export const patternOf = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);

/** From its first to its last node. */
function extentOf(source: string, declaration: string): { start: number; end: number } | undefined {
  const nodes = nodesOf(source)
    .filter((one) => one.declaration === declaration)
    .map(({ node }) => node);
  if (nodes.length === 0) return undefined;
  return {
    start: Math.min(...nodes.map((node) => node.getStart())),
    end: Math.max(...nodes.map((node) => node.getEnd())),
  };
}

export interface PlacedNode {
  node: ts.Node;
  /** Names from the outside in, with dots: `createSuites.run`. Empty outside of all declarations. */
  declaration: string;
}

/** Of the source that was asked for last: mutants of one file come together. */
let known: { source: string; nodes: PlacedNode[] } | undefined;

/** All nodes of a TypeScript source in the order of its text. */
export function nodesOf(source: string): PlacedNode[] {
  if (known?.source === source) return known.nodes;
  const nodes: PlacedNode[] = [];
  const visit = (node: ts.Node, outer: string): void => {
    const name = declaredName(node);
    const declaration = name === undefined ? outer : outer === '' ? name : `${outer}.${name}`;
    nodes.push({ node, declaration });
    ts.forEachChild(node, (child) => visit(child, declaration));
  };
  const file = ts.createSourceFile('source.ts', source, ts.ScriptTarget.Latest, true);
  ts.forEachChild(file, (child) => visit(child, ''));
  known = { source, nodes };
  return nodes;
}

/** Of functions, methods, classes, and the constants of a module. */
function declaredName(node: ts.Node): string | undefined {
  if (ts.isConstructorDeclaration(node)) return 'constructor';
  if (ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node) || ts.isClassDeclaration(node))
    return node.name?.getText();
  const isOfModule = ts.isVariableDeclaration(node) && ts.isSourceFile(node.parent.parent.parent);
  const hasFunction =
    (ts.isVariableDeclaration(node) || ts.isPropertyAssignment(node) || ts.isPropertyDeclaration(node)) &&
    node.initializer !== undefined &&
    (ts.isArrowFunction(node.initializer) || ts.isFunctionExpression(node.initializer));
  return isOfModule || hasFunction ? node.name.getText() : undefined;
}

/**
 * What the CLI writes. Standard output is the result and nothing else, so that it can be piped; progress, hints and
 * errors go to standard error. Colors only in a terminal that shows them, and not with NO_COLOR.
 */
import { WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import type { Shell } from './invocation.ts';
import { currentInvocation, shell } from './invocation.ts';
export { countOf, durationOf } from '../client/causes.ts';
import { printable, printableLines, tableOf } from './table.ts';

export function printLine(line = ''): void {
  showHead();
  shell().stdout.write(`${line}\n`);
}

/** While a user watches, each look is one line. What could act on the terminal is escaped, which JSON reads back. */
export function printJson(value: unknown): void {
  printLine(printableLines(JSON.stringify(value, null, currentInvocation().isWatched ? undefined : 2)));
}

/** For a person beside the result: progress, hints, errors. */
export function report(line: string): void {
  showHead();
  shell().stderr.write(`${line}\n`);
}

/**
 * One more look of several: in a terminal it takes the place of the one before, as soon as there is something to show.
 *
 * @param title stands above it; without one nothing does, and the terminal is left as it is.
 */
export function beginFrame(title: string | undefined): void {
  const invocation = currentInvocation();
  invocation.isWatched = true;
  invocation.hasHeading = false;
  const clear = shell().stdout.isTTY ? '\u001b[H\u001b[2J' : '';
  invocation.head = title === undefined ? '' : `${clear}${paint('dim', title)}\n`;
}

export const endFrame = (): void => showHead();

function showHead(): void {
  const invocation = currentInvocation();
  if (invocation.head === '') return;
  shell().stdout.write(invocation.head);
  invocation.head = '';
}

export type Cell = string | number | Date | undefined;

/** A value as text: times in UTC, nothing that could act on the terminal. */
export function textOf(cell: Cell): string {
  if (cell === undefined) return '';
  return cell instanceof Date ? cell.toISOString() : printable(String(cell));
}

/** Heads of a table, each with the field of an item that is below it, or what makes the cell. */
export type Columns<Item> = Record<string, keyof Item | ((item: Item) => Cell | null)>;

export interface TableChoices {
  /** Index of the column that is cut when the terminal is narrow. */
  flexible?: number;
  /** Index of the column that names what the items' links lead to. */
  linked?: number;
}

/** A row for each item, with its link: in a terminal behind the linked column, elsewhere in one more column. */
export function printItems<Item extends object>(
  items: readonly (Item & { link?: string | undefined })[],
  columns: NoInfer<Columns<Item>>,
  { flexible, linked = 0 }: TableChoices = {},
): void {
  const { isTTY: isTerminal, columns: width } = shell().stdout;
  const hasLinks = items.some(({ link }) => link !== undefined);
  const rows = items.map((item) => {
    const cells = Object.values(columns).map((make) => {
      const cell = typeof make === 'function' ? make(item) : (item[make] as Cell | null);
      return coloredStatus(textOf(cell ?? undefined));
    });
    if (hasLinks && isTerminal) cells[linked] = hyperlink(cells[linked]!, item.link);
    return hasLinks && !isTerminal ? [...cells, item.link ?? ''] : cells;
  });
  const head = [...Object.keys(columns), ...(hasLinks && !isTerminal ? ['LINK'] : [])];
  const options = { width: isTerminal ? width : undefined, flexible };
  printLine(
    tableOf(
      head.map((name) => paint('bold', name)),
      rows,
      options,
    ),
  );
}

/** The form in which terminals take a link behind a text (OSC 8); terminals without it show the text alone. */
function hyperlink(text: string, link: string | undefined): string {
  return link === undefined ? text : `\u001b]8;;${link}\u0007${text}\u001b]8;;\u0007`;
}

/** Names and values below each other; those without a value are left out. */
export function printFields(fields: readonly (readonly [name: string, value: Cell])[]): void {
  const given = fields.filter(([, value]) => value !== undefined && value !== '');
  const widest = Math.max(0, ...given.map(([name]) => name.length));
  for (const [name, value] of given) {
    printLine(`  ${paint('dim', name.padEnd(widest))}  ${coloredStatus(textOf(value))}`);
  }
}

/** A blank line before each but the first. */
export function printHeading(text: string): void {
  const invocation = currentInvocation();
  printLine(`${invocation.hasHeading ? '\n' : ''}${paint('bold', textOf(text))}`);
  invocation.hasHeading = true;
}

export function paint(style: 'bold' | 'dim' | 'red' | 'yellow' | 'green', text: string): string {
  return isColored(shell()) ? styleText(style, text, { validateStream: false }) : text;
}

/** As styleText decides by itself, which knows the environment of the process alone. */
const isColored = ({ env, stdout }: Shell): boolean =>
  (env['FORCE_COLOR'] !== undefined || stdout.isTTY === true) && WriteStream.prototype.getColorDepth(env) > 2;

const STYLES: Record<string, 'red' | 'yellow' | 'green'> = {
  dead_letter: 'red',
  error: 'red',
  failed: 'yellow',
  paused: 'yellow',
  pausing: 'yellow',
  draining: 'yellow',
  warn: 'yellow',
  published: 'green',
  ok: 'green',
};

function coloredStatus(text: string): string {
  const style = STYLES[text];
  return style ? paint(style, text) : text;
}

/** With a large first letter. */
export const capital = (word: string): string => `${word[0]!.toUpperCase()}${word.slice(1)}`;

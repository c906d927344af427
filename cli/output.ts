/**
 * What the CLI writes. Standard output is the result and nothing else, so that it can be piped; progress, hints and
 * errors go to standard error. Colors only in a terminal that shows them, and not with NO_COLOR.
 */
import { WriteStream } from 'node:tty';
import { stripVTControlCharacters, styleText } from 'node:util';
import type { Shell } from './invocation.ts';
import { currentInvocation, shell } from './invocation.ts';
export { countOf, durationOf } from '../api/text.ts';

export const printLine = (line = ''): void => void shell().stdout.write(`${line}\n`);

/** What could act on the terminal is escaped, which JSON reads back. */
export const printJson = (value: unknown): void => printLine(printableLines(JSON.stringify(value, null, 2)));

/** For a person beside the result: progress, hints, errors. */
export const report = (line: string): void => void shell().stderr.write(`${line}\n`);

export type Cell = string | number | Date | undefined;

/** A value as text: times in UTC, nothing that could act on the terminal. */
export function textOf(cell: Cell): string {
  if (cell === undefined) return '';
  return cell instanceof Date ? cell.toISOString() : printable(String(cell));
}

/** Fields of an item, below their own names; or heads of a table, each with the field that is below it or what makes the cell. */
export type Columns<Item> =
  readonly (keyof Item & string)[] | Record<string, keyof Item | ((item: Item) => Cell | null)>;

/**
 * A row for each item, with its link: in a terminal behind a column, elsewhere in one more column.
 *
 * @param linked index of the column that names what the links lead to.
 */
export function printItems<Item extends object>(
  items: readonly (Item & { link?: string | undefined })[],
  columns: NoInfer<Columns<Item>>,
  linked = 0,
): void {
  const isTerminal = shell().stdout.isTTY;
  const hasLinks = items.some(({ link }) => link !== undefined);
  const rows = items.map((item) => {
    const cells = Object.values(columns).map((make: keyof Item | ((item: Item) => Cell | null)) =>
      coloredStatus(textOf(cellOf(typeof make === 'function' ? make(item) : item[make]))),
    );
    if (hasLinks && isTerminal) cells[linked] = hyperlink(cells[linked]!, item.link);
    return hasLinks && !isTerminal ? [...cells, item.link ?? ''] : cells;
  });
  const names = Array.isArray(columns)
    ? columns.map((name: string) => wordsOf(name).toUpperCase())
    : Object.keys(columns);
  const head = [...names, ...(hasLinks && !isTerminal ? ['LINK'] : [])];
  const bold = head.map((name) => paint('bold', name));
  printLine(tableOf(bold, rows));
}

/** The form in which terminals take a link behind a text (OSC 8); terminals without it show the text alone. */
function hyperlink(text: string, link: string | undefined): string {
  return link === undefined ? text : `\u001b]8;;${link}\u0007${text}\u001b]8;;\u0007`;
}

/** `max attempts` for `maxAttempts`. */
const wordsOf = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replaceAll('_', ' ');

/** What has parts is shown as JSON. */
const cellOf = (value: unknown): Cell =>
  typeof value === 'object' && value !== null && !(value instanceof Date)
    ? JSON.stringify(value)
    : ((value ?? undefined) as Cell);

/** Fields of a view by their own names, in words. Those without a value are left out. */
export const printView = (view: object): void =>
  printFields(Object.entries(view).map(([name, value]) => [wordsOf(name), cellOf(value)]));

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

// --- Aligned columns without borders -----------------------------------------------------------------------------------

const GAP = '  ';

const GRAPHEMES = new Intl.Segmenter();
/** Terminals show these in two columns. */
const WIDE =
  /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|\p{Emoji_Presentation}/u;
/** In columns of the terminal, without colors and links. */
const widthOf = (text: string): number =>
  Array.from(GRAPHEMES.segment(stripVTControlCharacters(text))).reduce(
    (sum, { segment }) => sum + (WIDE.test(segment) ? 2 : 1),
    0,
  );

/** @returns lines without a last line feed. Cells are shown as they are: see `printable`. A terminal wraps what is wider. */
export function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => widthOf(line[column] ?? ''))));
  const padded = (text: string, column: number): string => text + ' '.repeat(widths[column]! - widthOf(text));
  return lines
    .map((line) =>
      head
        .map((_, column) => padded(line[column] ?? '', column))
        .join(GAP)
        .trimEnd(),
    )
    .join('\n');
}

/**
 * Text of others as it may be shown in a terminal: control characters, with which a producer could move the cursor or
 * hide a line, and marks that reverse the direction are written out.
 */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u2028\u2029\p{Bidi_C}]/gu,
    (character) => `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`,
  );
}

/** Keeps line breaks: for JSON, which has none inside its strings, and for messages of several lines. */
export const printableLines = (text: string): string => text.split('\n').map(printable).join('\n');

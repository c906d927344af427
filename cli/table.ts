/** Aligned columns without borders. */
import { stripVTControlCharacters } from 'node:util';

export interface TableOptions {
  /** Columns of the terminal; undefined when the output is no terminal, and nothing is cut. */
  width?: number | undefined;
  /** Index of the column that may be cut to fit the width, e.g. a message; ids never are. */
  flexible?: number | undefined;
}

/** A flexible column is not cut below this: a stub says nothing. */
const NARROWEST = 20;
const GAP = '  ';

const GRAPHEMES = new Intl.Segmenter();
const charactersOf = (text: string): string[] =>
  Array.from(GRAPHEMES.segment(stripVTControlCharacters(text)), ({ segment }) => segment);
/** Terminals show these in two columns. */
const WIDE =
  /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|\p{Emoji_Presentation}/u;
const sumOf = (characters: readonly string[]): number =>
  characters.reduce((sum, character) => sum + (WIDE.test(character) ? 2 : 1), 0);
/** In columns of the terminal, without colors and links. */
const widthOf = (text: string): number => sumOf(charactersOf(text));

/** A text that is too wide loses its color, too. */
function cutTo(width: number, text: string): string {
  if (widthOf(text) <= width) return text;
  const characters = charactersOf(text);
  while (sumOf(characters) >= width) characters.pop();
  return `${characters.join('')}…`;
}

/** @returns lines without a last line feed. Cells are shown as they are: see `printable`. */
export function tableOf(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  { width = Infinity, flexible }: TableOptions = {},
): string {
  const lines = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => widthOf(line[column] ?? ''))));
  const excess = widths.reduce((sum, one) => sum + one, GAP.length * (widths.length - 1)) - width;
  if (flexible !== undefined && excess > 0)
    widths[flexible] = Math.min(widths[flexible]!, Math.max(NARROWEST, widths[flexible]! - excess));
  const cellOf = (text: string, column: number): string => {
    const cell = column === flexible ? cutTo(widths[column]!, text) : text;
    return cell + ' '.repeat(widths[column]! - widthOf(cell));
  };
  return lines
    .map((line) =>
      head
        .map((_, column) => cellOf(line[column] ?? '', column))
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

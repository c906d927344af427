/** Aligned columns without borders, for people. */
import { stripVTControlCharacters } from 'node:util';
import Table from 'cli-table3';

export interface TableOptions {
  /** Columns of the terminal; undefined when the output is no terminal, and nothing is cut. */
  width?: number | undefined;
  /** Index of the column that may be cut to fit the width, e.g. a message; ids never are. */
  flexible?: number;
}

/** A flexible column is not cut below this: a stub says nothing. */
const NARROWEST = 20;
const GAP = '  ';

/** Without colours. */
const widthOf = (text: string): number => stripVTControlCharacters(text).length;

const NO_BORDERS = Object.fromEntries(
  [
    ...['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right'],
    ...['left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid'],
  ].map((name) => [name, '']),
);

/** @returns lines without a last line feed. Cells are shown as they are: see `printable`. */
export function tableOf(head: string[], rows: string[][], { width, flexible }: TableOptions = {}): string {
  const draw = (colWidths?: (number | null)[]): string[] => {
    const table = new Table({
      ...(colWidths ? { colWidths } : {}),
      chars: { ...NO_BORDERS, middle: GAP },
      style: { 'padding-left': 0, 'padding-right': 0, head: [], border: [] },
      truncate: '…',
    });
    table.push(head, ...rows);
    return table.toString().split('\n');
  };
  const finished = (lines: string[]): string => lines.map((line) => line.trimEnd()).join('\n');
  const lines = draw();
  const excess = Math.max(...lines.map(widthOf)) - (width ?? Infinity);
  if (flexible === undefined || excess <= 0) return finished(lines);
  const longest = Math.max(...[head, ...rows].map((row) => widthOf(row[flexible] ?? '')));
  const fitting = Math.max(NARROWEST, longest - excess);
  return finished(draw(head.map((_, column) => (column === flexible ? fitting : null))));
}

/**
 * Text of others as it may be shown in a terminal: control characters, with which a producer could move the cursor or
 * hide a line, and marks that reverse the direction are written out.
 */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`,
  );
}

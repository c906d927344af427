/** Aligned columns without borders, for what developers run. @returns lines without a last line feed. */
export function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)));
  const textOf = (line: readonly string[]) => line.map((cell, column) => cell.padEnd(widths[column]!));
  return lines.map((line) => textOf(line).join('  ').trimEnd()).join('\n');
}

/** Values as JSON has them, compared whatever the order of their fields. */

export function sameValue(one: unknown, other: unknown): boolean {
  return textOf(one) === textOf(other);
}

/** One text for equal values. */
export function textOf(value: unknown): string {
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) return `[${value.map(textOf).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'undefined';
  const fields = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${textOf(field)}`).join()}}`;
}

/** Parses JSON; undefined for invalid text. */
export function jsonOf(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '') as unknown;
  } catch {
    return undefined;
  }
}

/** Durations as people write them, in variables and on the command line alike. */

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Ten years: beyond, a duration is a typing error. */
const LONGEST_MS = 3_650 * 86_400_000;

/** What a duration looks like, for messages. */
export const DURATION_FORMS = 'such as 250ms, 90s, 1m30s, 2h or 7d';

/**
 * Reads a number with a unit (`ms`, `s`, `m`, `h`, `d`), or several that add up: `1m30s`.
 *
 * @returns ms, rounded; undefined for anything else, for less than 1 ms, and for more than ten years.
 */
export function durationMs(text: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/.test(text)) return undefined;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  const ms = parts.reduce((total, [, amount, unit]) => total + Number(amount) * UNITS_MS[unit!]!, 0);
  return ms >= 1 && ms <= LONGEST_MS ? Math.round(ms) : undefined;
}

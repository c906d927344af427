/** JSON as it arrives from outside: checked for all that would be lost or would break something further on. */

/** Deeper nesting serves no payload and would overflow the stack of whoever walks it recursively. */
export const MAX_JSON_DEPTH = 32;

/** Characters of a path that a message shows. */
const MAX_SHOWN_PATH = 200;

/** Why a text is not acceptable JSON; the message is for the producer. */
export class JsonError extends Error {
  override name = 'JsonError';
}

/**
 * Parses JSON, keeping only what survives canonical form, PostgreSQL and every consumer unchanged. The value is
 * JSON.parse's own, so a key `__proto__` is a property like any other.
 *
 * @throws JsonError for broken JSON, nesting beyond MAX_JSON_DEPTH, lone surrogates, NUL characters, and numbers
 * that a double cannot hold (integers beyond 2^53 - 1, overflows): they would silently become other numbers.
 */
export function parseJson(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new JsonError('is not valid JSON');
  }
  // Iterative, and before anything recursive sees the value.
  const open: { value: unknown; path: string; depth: number }[] = [{ value, path: '', depth: 0 }];
  for (let next = open.pop(); next; next = open.pop()) {
    refuseLossy(next.value, next.path);
    if (typeof next.value !== 'object' || next.value === null) continue;
    if (next.depth === MAX_JSON_DEPTH) throw new JsonError(`is nested deeper than ${MAX_JSON_DEPTH} levels`);
    for (const [key, child] of Object.entries(next.value)) {
      refuseLossy(key, `key of ${next.path || 'the top level'}`);
      open.push({ value: child, path: next.path ? `${next.path}.${key}` : key, depth: next.depth + 1 });
    }
  }
  return value;
}

function refuseLossy(value: unknown, path: string): void {
  const problem = problemOf(value);
  if (problem === undefined) return;
  // Only here may the path be read: each reading costs its whole length, which the sender decides.
  throw new JsonError(path === '' ? problem : `${problem} at ${path.slice(0, MAX_SHOWN_PATH)}`);
}

function problemOf(value: unknown): string | undefined {
  if (typeof value === 'string') {
    if (!value.isWellFormed()) return 'has a lone surrogate';
    if (value.includes('\0')) return 'has a NUL character';
  }
  if (typeof value === 'number') {
    const isExact = Number.isInteger(value) ? Number.isSafeInteger(value) : Number.isFinite(value);
    if (!isExact) return 'has a number that JSON cannot carry exactly';
  }
  return undefined;
}

/** A JSON object: no array, no null. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

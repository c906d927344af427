/** JSON as it arrives from outside: checked for all that would be lost or would break something further on. */

/** Deeper nesting serves no payload and would overflow the stack of whoever walks it recursively. */
export const MAX_JSON_DEPTH = 32;

/** Why a text is not acceptable JSON; the message is for the producer. */
export class JsonError extends Error {
  override name = 'JsonError';
}

/**
 * Parses JSON, keeping only what survives canonical form, PostgreSQL and every consumer unchanged.
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
    checkScalar(next.value, next.path);
    if (typeof next.value !== 'object' || next.value === null) continue;
    if (next.depth === MAX_JSON_DEPTH) throw new JsonError(`is nested deeper than ${MAX_JSON_DEPTH} levels`);
    for (const [key, child] of Object.entries(next.value)) {
      checkScalar(key, `key of ${next.path || 'the top level'}`);
      open.push({ value: child, path: next.path ? `${next.path}.${key}` : key, depth: next.depth + 1 });
    }
  }
  return value;
}

function checkScalar(value: unknown, path: string): void {
  const at = path ? ` at ${path.slice(0, 200)}` : '';
  if (typeof value === 'string') {
    if (!value.isWellFormed()) throw new JsonError(`has a lone surrogate${at}`);
    if (value.includes('\0')) throw new JsonError(`has a NUL character${at}`);
  }
  if (typeof value === 'number' && (!Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value)))) {
    throw new JsonError(`has a number that JSON cannot carry exactly${at}; send it as a string`);
  }
}

export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

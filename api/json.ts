/** JSON as it arrives from outside: checked for all that would be lost or would break something further on. */

/** Deeper nesting serves no payload and would overflow the stack of code that walks it recursively. */
export const MAX_JSON_DEPTH = 32;

/** Keys that a message shows: the names of fields. Another one may be a value of the sender, such as an address. */
const SHOWN_KEY = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
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
  const flaw = flawIn(value, 0);
  if (flaw) throw new JsonError(messageOf(flaw));
  return value;
}

interface Flaw {
  problem: string;
  /** Keys that lead to it; absent when it is about the whole. */
  path?: (string | number)[];
  /** It is in a key of what the path leads to. */
  isInKey?: true;
}

/**
 * The first flaw in the order of the text. Recursive no deeper than is allowed, and without memory for what has none: a
 * megabyte may hold hundreds of thousands of values.
 */
function flawIn(value: unknown, depth: number): Flaw | undefined {
  const problem = problemOf(value);
  if (problem !== undefined) return { problem, path: [] };
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth === MAX_JSON_DEPTH) return { problem: `is nested deeper than ${MAX_JSON_DEPTH} levels` };
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index += 1) {
      const flaw = flawIn(value[index], depth + 1);
      if (flaw) return behind(index, flaw);
    }
    return undefined;
  }
  for (const key of Object.keys(value)) {
    const inKey = problemOf(key);
    if (inKey !== undefined) return { problem: inKey, path: [], isInKey: true };
    const flaw = flawIn((value as Record<string, unknown>)[key], depth + 1);
    if (flaw) return behind(key, flaw);
  }
  return undefined;
}

function behind(key: string | number, flaw: Flaw): Flaw {
  flaw.path?.unshift(key);
  return flaw;
}

function messageOf({ problem, path, isInKey }: Flaw): string {
  if (path === undefined) return problem;
  const place = path
    .map((key) => (typeof key === 'number' || SHOWN_KEY.test(key) ? key : '…'))
    .join('.')
    .slice(0, MAX_SHOWN_PATH);
  if (isInKey) return `${problem} at key of ${place || 'the top level'}`;
  return place === '' ? problem : `${problem} at ${place}`;
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

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
  if (isDeep(text)) throw new JsonError(`is nested deeper than ${MAX_JSON_DEPTH} levels`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new JsonError('is not valid JSON');
  }
  const flaw = flawIn(value);
  if (flaw) throw new JsonError(messageOf(flaw));
  return value;
}

/**
 * Counts brackets, also those of values that a later one of the same key overrides: parsing a megabyte of them blocks the
 * process for up to a second. The count of a text that is not JSON means nothing.
 */
function isDeep(text: string): boolean {
  let depth = 0;
  let isInString = false;
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index];
    if (character === '"') isInString = !isInString;
    else if (isInString) index += character === '\\' ? 1 : 0;
    else if (character === '[' || character === '{') depth += 1;
    else if (character === ']' || character === '}') depth -= 1;
    if (depth > MAX_JSON_DEPTH) return true;
  }
  return false;
}

interface Flaw {
  problem: string;
  /** Keys that lead to it. */
  path: (string | number)[];
  /** It is in a key of what the path leads to. */
  isInKey?: true;
}

/**
 * The first flaw in the order of the text. Recursive, since depth is bounded, and without memory for what has none: a
 * megabyte may hold hundreds of thousands of values.
 */
function flawIn(value: unknown): Flaw | undefined {
  const problem = problemOf(value);
  if (problem !== undefined) return { problem, path: [] };
  if (typeof value !== 'object' || value === null) return undefined;
  for (const key of Array.isArray(value) ? value.keys() : Object.keys(value)) {
    const inKey = typeof key === 'string' ? problemOf(key) : undefined;
    if (inKey !== undefined) return { problem: inKey, path: [], isInKey: true };
    const flaw = flawIn((value as Record<string | number, unknown>)[key]);
    if (flaw) return { ...flaw, path: [key, ...flaw.path] };
  }
  return undefined;
}

function messageOf({ problem, path, isInKey }: Flaw): string {
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

/** @returns the value of a JSON text; undefined for another text, and for none. */
export function jsonIn(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

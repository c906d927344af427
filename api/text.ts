/**
 * Entries of streams, text, JSON and durations as they arrive from outside: JSON is checked for all that would be lost or would
 * break something further on, and what is kept of an entry that was refused is bounded, in a form that PostgreSQL's text and
 * jsonb take.
 */
import { isUtf8 } from 'node:buffer';

/** The fields of an entry as Redis gives them: in order, names not necessarily unique, bytes not necessarily text. */
export type EntryFields = readonly (readonly [name: Buffer, value: Buffer])[];

/** What an entry weighs in its stream. */
export interface EntrySize {
  /** Names and values together. */
  bytes: number;
  fields: number;
  /** Of an entry that is too large only the first fields are read, each cut: how many bytes those have in the stream. */
  lengths?: readonly (readonly [name: number, value: number])[];
}

/** No contract has a twentieth of them. Each costs memory, also when it is empty. */
export const MAX_ENTRY_FIELDS = 1_024;

/** Of a refused entry, so many fields are kept, and so much of a value. */
export const SHOWN_FIELDS = 64;
export const SHOWN_VALUE_BYTES = 4 * 1024;
const MAX_RAW_NAME_BYTES = 128;
const MAX_RAW_TOTAL_BYTES = 16 * 1024;

export function sizeOf(fields: EntryFields): EntrySize {
  const bytes = fields.reduce((total, [name, value]) => total + name.length + value.length, 0);
  return { bytes, fields: fields.length };
}

/** Why an entry is refused. The message names fields and quotes no values: it goes into logs. */
export class Refusal<Code extends string> extends Error {
  readonly code: Code;
  constructor(code: Code, message: string) {
    super(message);
    this.code = code;
  }
}

/** @throws what is no refusal: a fault of our own must not make good entries malformed. */
export function refusalIn<Code extends string>(error: unknown): Refusal<Code> {
  if (error instanceof Refusal) return error as Refusal<Code>;
  throw error;
}

/** @throws Refusal `entry_too_large`. */
export function refuseOversize({ bytes, fields }: EntrySize, maxBytes: number): void {
  const refuse = (what: string, most: number) =>
    new Refusal('entry_too_large', `the entry has ${what}; at most ${most} are accepted`);
  if (bytes > maxBytes) throw refuse(`${bytes} bytes`, maxBytes);
  if (fields > MAX_ENTRY_FIELDS) throw refuse(`${fields} fields`, MAX_ENTRY_FIELDS);
}

/**
 * The known fields of an entry as text; others are ignored.
 *
 * @throws Refusal with this code when one of them is given twice, or is not UTF-8.
 */
export function knownFields(
  fields: EntryFields,
  names: readonly string[],
  code: string,
): Map<string, string> {
  const known = new Map<string, string>();
  for (const [nameBytes, value] of fields) {
    const name = nameBytes.toString('latin1');
    if (!names.includes(name)) continue;
    if (known.has(name)) throw new Refusal(code, `${name} is given more than once`);
    if (!isUtf8(value)) throw new Refusal(code, `${name} is not UTF-8`);
    known.set(name, value.toString('utf8'));
  }
  return known;
}

/**
 * What an operator needs to see of an entry, in a form that jsonb takes: bounded in size, valid text. A name that
 * comes again gets a number; what was cut says how long it was.
 *
 * @param size of the entry in its stream, when not all of it was read.
 */
export function storableFields(fields: EntryFields, size = sizeOf(fields)): Record<string, string> {
  const raw = new Map<string, string>();
  let room = MAX_RAW_TOTAL_BYTES;
  for (const [index, [nameBytes, value]] of fields.slice(0, SHOWN_FIELDS).entries()) {
    const lengths = size.lengths?.[index];
    const name = unusedName(raw, cutBytes(nameBytes, MAX_RAW_NAME_BYTES, lengths?.[0]));
    const shown = cutBytes(value, Math.min(SHOWN_VALUE_BYTES, Math.max(0, room)), lengths?.[1]);
    raw.set(name, shown);
    room -= Buffer.byteLength(name) + Buffer.byteLength(shown);
  }
  const left = size.fields - SHOWN_FIELDS;
  if (left > 0) raw.set(unusedName(raw, '…'), `${left} further fields`);
  // From entries, so that a field named __proto__ becomes a property like any other.
  return Object.fromEntries(raw);
}

function unusedName(taken: ReadonlyMap<string, string>, name: string): string {
  let candidate = name;
  for (let count = 2; taken.has(candidate); count += 1) candidate = `${name} (${count})`;
  return candidate;
}

/** Bytes as text of at most `max` bytes, and a note when that is not all. */
function cutBytes(bytes: Buffer, max: number, length = bytes.length): string {
  const text = Buffer.from(storableText(bytes, max));
  // A replacement character is longer than what it stands for, so the text may be cut where the bytes fit.
  if (length <= max && text.length <= max) return text.toString();
  return `${storableText(text, max)}… (cut, ${length} bytes in all)`;
}

/** Whether `cutBytes` has left something out of a text, or put a replacement character in. */
export const isShownOnly = (text: string): boolean =>
  text.includes('\ufffd') || /… \(cut, \d+ bytes in all\)$/.test(text);

/**
 * The first `max` bytes as text that every store takes: bytes that are not UTF-8 and NUL appear as replacement
 * characters, a character that the end cuts through not at all.
 */
export function storableText(bytes: Buffer, max: number): string {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const text = decoder.decode(bytes.subarray(0, max), { stream: bytes.length > max });
  return text.replaceAll('\0', '\ufffd');
}

/** Text that every store takes: NUL and lone surrogates appear as replacement characters. */
export const wellFormedText = (text: string): string => text.toWellFormed().replaceAll('\0', '\ufffd');

/** At most `max` UTF-16 units, cut between characters, never through one. */
export function cutText(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max - 1).replace(/\p{Surrogate}$/u, '')}…`;
}

/**
 * @param most letters that may differ.
 * @returns the name that is most like a text (Levenshtein), for a hint; undefined when all are too different.
 */
export function nearestOf(
  text: string,
  names: Iterable<string>,
  most = Math.ceil(text.length / 3),
): string | undefined {
  const [nearest] = [...names]
    // The lengths alone rule most out, however long a text is.
    .filter((name) => Math.abs(name.length - text.length) <= most)
    .map((name) => ({ name, distance: editDistance(text, name) }))
    .filter(({ distance }) => distance <= most)
    .sort((one, other) => one.distance - other.distance);
  return nearest?.name;
}

/** How many letters are inserted, deleted or replaced between two texts. */
function editDistance(one: string, other: string): number {
  let above = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 0; i < one.length; i++) {
    const row = [i + 1];
    for (let j = 0; j < other.length; j++) {
      const replaced = above[j]! + (one[i] === other[j] ? 0 : 1);
      row.push(Math.min(replaced, above[j + 1]! + 1, row[j]! + 1));
    }
    above = row;
  }
  return above.at(-1)!;
}

/** Deeper nesting serves no payload and would overflow the stack of code that walks it recursively. */
export const MAX_JSON_DEPTH = 32;

/** Keys that a message shows: the names of fields. Another one may be a value of the sender, such as an address. */
const SHOWN_KEY = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
/** Characters of a path that a message shows. */
const MAX_SHOWN_PATH = 200;

/**
 * Parses the JSON of a field, keeping only what survives canonical form, PostgreSQL and every consumer unchanged. The value
 * is JSON.parse's own, so a key `__proto__` is a property like any other.
 *
 * @throws Refusal with this code for broken JSON, nesting beyond MAX_JSON_DEPTH, lone surrogates, NUL characters, and numbers
 * that a double cannot hold (integers beyond 2^53 - 1, overflows): they would silently become other numbers.
 */
export function parseJson(text: string, name: string, code: string): unknown {
  if (isDeep(text)) throw new Refusal(code, `${name} is nested deeper than ${MAX_JSON_DEPTH} levels`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refusal(code, `${name} is not valid JSON`);
  }
  const flaw = flawIn(value);
  if (flaw) throw new Refusal(code, `${name} ${messageOf(flaw)}`);
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

/** Units of durations in variables and on the command line. */
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

// --- Words for people --------------------------------------------------------------------------------------------------

/** A time within a sentence. */
export const timeOf = (time: Date): string => time.toISOString().replace('.000Z', 'Z');

/** `1 device`, `2 devices`. */
export const countOf = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

/** A duration in ms as a person says it: `350 ms`, `12 s`, `3 min`, `5 h`, `2 d`. */
export function durationOf(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** A text as one word for a shell: producers choose ids and values, and people paste commands. */
export const shellWord = (text: string): string =>
  /^[\w:@./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

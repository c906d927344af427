/** Texts and JSON that have broken programs before, and generators of more of them. */
import fc from 'fast-check';
import type { EntryFields } from '../../api/text.ts';

/** `npm run test:all` sets it to 100,000. */
const CASES = process.env['FUZZ_CASES'];

/** Declares the test of a property. @param usually how many cases it has when FUZZ_CASES is not set. */
export const fuzz = <Values extends [unknown, ...unknown[]]>(
  title: string,
  usually: number,
  values: { [Index in keyof Values]: fc.Arbitrary<Values[Index]> },
  check: (...values: Values) => void | Promise<void>,
): void =>
  test(
    title,
    () =>
      fc.assert(
        fc.asyncProperty(...values, async (...given: Values) => check(...given)),
        { numRuns: Number(CASES ?? usually), endOnFailure: true },
      ),
    // No case may take long, but each takes some time.
    60_000 + Number(CASES ?? usually) * 10,
  );

const LONG = 'x'.repeat(5_000);

const words = (text: string): string[] => text.split(/\s+/);

export const NASTY_TEXTS: readonly string[] = [
  ...['', ' ', '\0', 'a\0b', '\u0000\u0001\u001f\u007f\u0085\u2028\ufeff', '\r\n\r\nHTTP/1.1 200 OK', LONG],
  ...['\ud800', 'a\udc00b', '\ud83d\ude00', '\u202etxt.exe', 'e\u0301', 'ﬃ İ ß'],
  ...["'; DROP TABLE notification.routes; --", '${7*7}{{7*7}}'],
  ...words('__proto__ constructor toString undefined null NaN .. ../../etc/passwd %00%2e%2e%2f'),
  ...words('-0 1e400 0x10 99999999999999999999999999'),
];

const deep = (open: string, close: string, depth: number) => open.repeat(depth) + close.repeat(depth);

export const NASTY_JSON: readonly string[] = [
  ...words(`{ [ " {}x [1,] {'a':1} {"a":1,"a":2} 1e400 -1e400 NaN Infinity`),
  ...words('{"__proto__":{"a":1}} {"constructor":{"prototype":{"a":1}}} {"toString":1,"hasOwnProperty":2}'),
  ...words('{"n":1e400} {"n":123456789012345678901234567890} {"n":0.1e-400} {"n":-0}'),
  ...words(String.raw`"\ud800" {"\udc00":1} "a\u0000b" {"a\u0000":1}`),
  ...words('[null,true,false] ["user-1","user-1"] [""] ["."] [["user-1"]]'),
  ...['\ufeff{}', deep('[', ']', 200), deep('[', ']', 20_000), deep('{"a":', '}', 100).replace('}', '1}')],
  ...['['.repeat(100_000), `["${LONG}"]`, `{"${LONG}":1}`, `{"n":${'9'.repeat(5_000)}}`],
  `[${Array.from({ length: 5_000 }, (_, index) => `"u${index}"`).join()}]`,
];

export const text: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...NASTY_TEXTS) },
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  { weight: 2, arbitrary: fc.string({ maxLength: 300 }) },
  // Single units, paired or not.
  {
    weight: 1,
    arbitrary: fc
      .array(fc.integer({ min: 0xd700, max: 0xe0ff }), { maxLength: 8 })
      .map((units) => String.fromCharCode(...units)),
  },
);

export const json: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...NASTY_JSON) },
  { weight: 3, arbitrary: fc.json({ maxDepth: 4 }) },
  { weight: 2, arbitrary: fc.anything({ withNullPrototype: false }).map((value) => safeJson(value)) },
  // Valid but for a cut or a stranger in the middle.
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.json({ maxDepth: 3 }), fc.nat(60), fc.constantFrom('', ',', '"', '\0', '\\', '}', '\ud800'))
      .map(
        ([whole, at, stranger]) => whole.slice(0, at) + stranger + (stranger === '' ? '' : whole.slice(at)),
      ),
  },
);

function safeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'undefined';
  } catch {
    return '[object]';
  }
}

export const bytes: fc.Arbitrary<Buffer> = fc.oneof(
  { weight: 4, arbitrary: text.map((value) => Buffer.from(value)) },
  { weight: 2, arbitrary: json.map((value) => Buffer.from(value)) },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 64 }).map((value) => Buffer.from(value)) },
);

/** A good entry with any number of its fields replaced, removed, doubled or joined by others. */
export function disturbed(good: EntryFields): fc.Arbitrary<EntryFields> {
  const names = good.map(([name]) => name);
  const name = fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...names) }, { weight: 1, arbitrary: bytes });
  return fc
    .tuple(
      fc.subarray([...good], { minLength: Math.max(0, good.length - 2) }),
      fc.array(fc.tuple(name, bytes), { maxLength: 3 }),
    )
    .chain(([kept, changes]) => {
      const replaced = kept.map(([own, value]) => {
        const change = changes.find(([other]) => own.equals(other));
        return [own, change ? change[1] : value] as const;
      });
      // Half of the time a change replaces, else it comes as a second field of the name.
      return fc.boolean().map((isDoubled) => (isDoubled ? [...kept, ...changes] : replaced));
    });
}

/**
 * The canonical form of JSON. Apart from json.ts, which the configuration loads: Jest's global set-up cannot load a
 * package that is for `import` only.
 */
import canonicalize from 'canonicalize';

/** @returns the canonical form (RFC 8785) of an object whose values are JSON, as `parseJson` gives them. */
export function canonicalJson(value: object): string {
  // Undefined stands for values without a JSON form; an object has one.
  return canonicalize(value) as string;
}

/**
 * An idempotency key may name the user of its intent. So the rows of a forgotten user keep its hash: a producer that
 * publishes the key again still meets its duplicate. The hash names, it does not protect.
 */
const PREFIX = 'forgotten:';

/** What stands for a key; also as a pattern of PostgreSQL. */
export const FORGOTTEN_KEY = new RegExp(`^${PREFIX}[0-9a-f]{64}$`);

/** SQL: what stands for a key that is not hashed yet. @param key SQL of a text. */
export const forgottenKeySql = (key: string): string =>
  `'${PREFIX}' || encode(sha256(convert_to(${key}, 'UTF8')), 'hex')`;

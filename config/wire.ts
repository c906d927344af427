/**
 * Whether the connections of a process are encrypted, and both ends proven. In production what is open stops the start,
 * unless NOTIFICATION_INSECURE names the connection.
 */
import type { RedisAddress } from './values.ts';

/** The connections that NOTIFICATION_INSECURE may name. */
export const CONNECTIONS = [
  'redis',
  'postgres',
  'temporal',
  'user-service',
  'portfolio',
  'symbol-targets',
  'codec',
  'otel',
] as const;
export type ConnectionName = (typeof CONNECTIONS)[number];

export interface InsecureValues {
  NOTIFICATION_INSECURE: readonly ConnectionName[];
}

/** Two ends that speak through a network, and what is open between them. */
export interface Wire {
  /** As `doctor` shows it. */
  name: string;
  /** Its name in NOTIFICATION_INSECURE; none where nothing can be open. */
  connection?: ConnectionName;
  /** Whether NOTIFICATION_INSECURE names it. */
  isAllowed: boolean;
  /** One line for each thing that is open, beginning with the variable that closes it. */
  gaps: string[];
}

/** The part of a wire that NOTIFICATION_INSECURE decides. */
export const openness = (
  values: InsecureValues,
  connection: ConnectionName,
): Pick<Wire, 'connection' | 'isAllowed'> => ({
  connection,
  isAllowed: values.NOTIFICATION_INSECURE.includes(connection),
});

/** What `doctor` and the log are told, and what stops a start. */
export const openWires = (wires: readonly Wire[]): Wire[] => wires.filter(({ gaps }) => gaps.length > 0);

/** One line for each thing that is open and must not be. */
export function wireProblems(wires: readonly Wire[]): string[] {
  return openWires(wires)
    .filter(({ isAllowed }) => !isAllowed)
    .flatMap(({ gaps, connection }) =>
      gaps.map((gap) =>
        connection === undefined ? gap : `${gap} (or NOTIFICATION_INSECURE=${connection} leaves it open)`,
      ),
    );
}

/** @returns the lines that hold. */
export const linesThat = (...lines: readonly (readonly [holds: boolean, line: string])[]): string[] =>
  lines.flatMap(([holds, line]) => (holds ? [line] : []));

/** @returns a line when a secret that is configured protects nothing. */
export function guessable(
  variable: string,
  secret: string | undefined,
  weaknessIn: (secret: string) => string | undefined = weaknessOfSecret,
): string[] {
  const weakness = secret === undefined ? undefined : weaknessIn(secret);
  return linesThat([weakness !== undefined, `${variable} can be guessed: ${weakness}`]);
}

/** Only the first key seals: one that is weak must be left, and still open what it has sealed. */
export function sealingKeyWires(name: string, variable: string, keys: readonly { key: Buffer }[]): Wire[] {
  const [first] = keys;
  if (!first) return [];
  const weakness = weaknessOfKey(first.key);
  const line = `${variable} begins with a key that can be guessed: ${weakness}; put a random one before it`;
  return [{ name, isAllowed: false, gaps: linesThat([weakness !== undefined, line]) }];
}

/** What stays within the machine, or the pod, need not be encrypted. */
export const isLoopback = (host: string): boolean =>
  ['localhost', '::1', '[::1]'].includes(host) || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);

/** @param variable that has the URL. */
export function plainUrlGaps(variable: string, url: string): string[] {
  const { protocol, hostname, host } = new URL(url);
  const line = `${variable} must be https: what is sent to ${host} can be read and changed`;
  return linesThat([protocol === 'http:' && !isLoopback(hostname), line]);
}

/** @param variable that has the address. */
export const plainRedisGaps = (variable: string, addresses: readonly RedisAddress[]): string[] =>
  linesThat([
    addresses.some(({ host, tls }) => tls === undefined && !isLoopback(host)),
    `${variable} must be rediss://host:port: without TLS everything can be read and changed`,
  ]);

/** Fewest characters, and bits, of a password or token. */
const SECRET_LENGTH = 16;
const SECRET_BITS = 40;
/** The published files begin every secret that an operator has to replace like this. */
const PLACEHOLDER = /^replace-/;

/** @returns why a password or token protects nothing, in words that do not tell it; undefined: it does. */
export const weaknessOfSecret = (secret: string): string | undefined =>
  PLACEHOLDER.test(secret)
    ? 'it is the placeholder of a published file'
    : weaknessOf(
        [...secret].map((character) => character.codePointAt(0)!),
        SECRET_LENGTH,
        SECRET_BITS,
      );

/** Of a key of 24 bytes or more. Random ones have 24 different bytes and more; 12 are out of reach for chance. */
export const weaknessOfKey = (key: Uint8Array): string | undefined => weaknessOf([...key], 24, 12 * 8);

/** @returns what is wrong with it, in words that do not tell it. */
function weaknessOf(symbols: readonly number[], fewest: number, fewestBits: number): string | undefined {
  if (symbols.length < fewest) return `it has fewer than ${fewest} characters`;
  if (isRepetition(symbols)) return 'it repeats itself';
  if (longestRun(symbols) > symbols.length / 2) return 'it counts or stays the same';
  return entropyOf(symbols) * symbols.length < fewestBits ? 'it has too few different characters' : undefined;
}

/** Whether a shorter piece over and over makes all of it. */
function isRepetition(symbols: readonly number[]): boolean {
  for (let period = 1; period <= symbols.length / 2; period += 1) {
    if (symbols.every((symbol, at) => symbol === symbols[at % period])) return true;
  }
  return false;
}

/** The longest piece in which each symbol is as far from the one before as that from its own: `aaaa`, `1234`, `zyxw`. */
function longestRun(symbols: readonly number[]): number {
  let [longest, run] = [1, 1];
  for (let at = 1; at < symbols.length; at += 1) {
    const step = symbols[at]! - symbols[at - 1]!;
    const goesOn = at > 1 && step === symbols[at - 1]! - symbols[at - 2]! && Math.abs(step) <= 1;
    run = goesOn ? run + 1 : 2;
    longest = Math.max(longest, run);
  }
  return longest;
}

/** Bits for each symbol, after Shannon. */
function entropyOf(symbols: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const symbol of symbols) counts.set(symbol, (counts.get(symbol) ?? 0) + 1);
  return [...counts.values()].reduce((bits, count) => {
    const share = count / symbols.length;
    return bits - share * Math.log2(share);
  }, 0);
}

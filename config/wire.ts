/**
 * Whether the connections of a process are encrypted, and both ends proven. In production what is open stops the start,
 * unless NOTIFICATION_INSECURE names the connection.
 */

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

/** Two ends that speak through a network, and what is open between them. */
export interface Wire {
  /** As `doctor` shows it. */
  name: string;
  /** Its name in NOTIFICATION_INSECURE; none where nothing can be open. */
  connection?: ConnectionName;
  /** One line for each thing that is open, beginning with the variable that closes it. */
  gaps: string[];
  /** Servers of other operators at its far end, as `doctor` tries them. */
  farSide?: FarSide;
}

/** A wire of a configuration. */
export interface ConfiguredWire extends Wire {
  /** Whether NOTIFICATION_INSECURE names it. */
  isAllowed: boolean;
}

interface FarSide {
  places: readonly Place[];
  /** What happens while they do not answer. */
  meanwhile: string;
}

export interface Place {
  name: string;
  url: string;
}

/** What `doctor` and the log are told, and what stops a start. */
export const openWires = (wires: readonly ConfiguredWire[]): ConfiguredWire[] =>
  wires.filter(({ gaps }) => gaps.length > 0);

/** One line for each thing that is open and must not be. */
export function wireProblems(wires: readonly ConfiguredWire[]): string[] {
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
  return [{ name, gaps: linesThat([weakness !== undefined, line]) }];
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
export const plainRedisGaps = (
  variable: string,
  addresses: readonly { host: string; tls?: true }[],
): string[] =>
  linesThat([
    addresses.some(({ host, tls }) => tls === undefined && !isLoopback(host)),
    `${variable} must be rediss://host:port: without TLS everything can be read and changed`,
  ]);

/** Fewest characters of a password or token, and fewest different distances between neighbors. */
const SECRET_LENGTH = 16;
const SECRET_STEPS = 6;
/** The published files begin every secret that an operator has to replace like this. */
const PLACEHOLDER = /^replace-/;

/** @returns why a password or token protects nothing, in words that do not tell it; undefined: it does. */
export const weaknessOfSecret = (secret: string): string | undefined =>
  PLACEHOLDER.test(secret)
    ? 'it is the placeholder of a published file'
    : weaknessOf(Buffer.from(secret), SECRET_LENGTH, SECRET_STEPS);

/** Of a key of 24 bytes or more. Random ones have 17 different distances and more; 12 are out of reach for chance. */
export const weaknessOfKey = (key: Uint8Array): string | undefined => weaknessOf(key, 24, 12);

/** @returns what is wrong with it, in words that do not tell it. */
function weaknessOf(bytes: Uint8Array, fewest: number, fewestSteps: number): string | undefined {
  if (bytes.length < fewest) return `it has fewer than ${fewest} characters`;
  for (let period = 1; period <= bytes.length / 2; period += 1) {
    if (bytes.every((byte, at) => byte === bytes[at % period])) return 'it repeats itself';
  }
  // `1111` has one distance, as has `1234`.
  const steps = new Set(Array.from(bytes.subarray(1), (byte, at) => byte - bytes[at]!));
  return steps.size < fewestSteps ? 'it counts, or has too few different characters' : undefined;
}

/**
 * What is done about an error of a router, of the way to it or of this side. One table, so that every worker and every
 * token operation judges alike.
 */
import type { RouterError } from './ports.ts';

/**
 * `temporary` and `host` are tried again for as long as it takes. `permanent` ends the work on an item and is reported;
 * only a new command starts it again.
 */
export type RouterErrorClass = 'temporary' | 'host' | 'permanent';

/**
 * The errors that are worth another try; every other error is permanent. So are all answers of a router, INTERNAL and
 * STORE among them: the router was reached and has decided.
 */
const RETRIED: Readonly<Record<string, Exclude<RouterErrorClass, 'permanent'>>> = {
  // No answer in time.
  'BROKER TIMEOUT': 'temporary',
  // Connecting, TLS, a broken connection. A certificate with another fingerprint too: it may be exchanged again.
  'BROKER NETWORK': 'temporary',
  'BROKER IO': 'temporary',
  // None of the router's names leads anywhere at present.
  'BROKER HOST': 'host',
  // There is no version of the protocol that both sides speak, until one of them is upgraded.
  'BROKER VERSION': 'host',
  // This side is being shut down.
  'AGENT INACTIVE': 'temporary',
  'STORE BUSY': 'temporary',
};

export function classOf({ source, code }: RouterError): RouterErrorClass {
  return RETRIED[`${source} ${code}`] ?? 'permanent';
}

/** Whether the same item may succeed without anybody doing something about it. */
export function isRetried(error: RouterError): boolean {
  return classOf(error) !== 'permanent';
}

/** The notification router does not know the token or the subscription, or not with this key. */
export function isUnknownToNotificationRouter({ source, code }: RouterError): boolean {
  return source === 'NTF' && code === 'AUTH';
}

/** What a router says in an error, as the protocol has it. */
const KNOWN_CODES: ReadonlySet<string> = new Set([
  ...['AUTH', 'BLOCK', 'BLOCKED', 'CMD', 'CRYPTO', 'EXPIRED', 'INTERNAL', 'LARGE_MSG', 'NO_MSG', 'QUOTA'],
  ...['SERVICE', 'SESSION', 'STORE'],
]);
const KNOWN_DETAILS: ReadonlySet<string> = new Set([
  ...['HAS_AUTH', 'NO_AUTH', 'NO_ENTITY', 'PROHIBITED', 'SYNTAX', 'UNKNOWN'],
]);

/**
 * An error of a router without anything that is not a word of the protocol: its own words may quote the request, keys
 * included, and errors stand in logs, rows, streams and histories. An unknown code is `UNKNOWN`, permanent as any.
 */
export function withoutOwnWords(
  source: 'NTF' | 'SMP',
  { code, detail }: { code: string; detail?: string | undefined },
): RouterError {
  return {
    source,
    code: KNOWN_CODES.has(code) ? code : 'UNKNOWN',
    ...(detail !== undefined && KNOWN_DETAILS.has(detail) ? { detail } : {}),
  };
}

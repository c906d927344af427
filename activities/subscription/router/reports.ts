/** What is remembered of each router for operators: the last time that something went wrong with it, and what. */
import { endpointOf } from '../../../api/subscription/router-address.ts';
import type { RouterAddress, RouterError, RouterResult } from './ports.ts';

/** Routers that are remembered; beyond that, those with which nothing went wrong for the longest time are forgotten. */
const KEPT_ROUTERS = 1_024;

export interface LastError {
  error: RouterError;
  at: Date;
}

export interface RouterReports {
  /** Notes what went wrong. */
  noteAll(address: RouterAddress, results: readonly RouterResult<unknown>[]): void;
  lastErrorOf(address: RouterAddress): LastError | undefined;
}

export function createRouterReports(): RouterReports {
  /** The latest at the end. */
  const errors = new Map<string, LastError>();

  function note(address: RouterAddress, result: RouterResult<unknown>): void {
    // AUTH is about one queue or token, not about the router.
    if (result.ok || result.error.source === 'AGENT' || result.error.code === 'AUTH') return;
    const endpoint = endpointOf(address);
    errors.delete(endpoint);
    errors.set(endpoint, { error: result.error, at: new Date() });
    for (const oldest of errors.keys()) {
      if (errors.size <= KEPT_ROUTERS) break;
      errors.delete(oldest);
    }
  }

  return {
    noteAll: (address, results) => results.forEach((result) => note(address, result)),
    lastErrorOf: (address) => errors.get(endpointOf(address)),
  };
}

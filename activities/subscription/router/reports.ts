/** What is remembered of each router for operators: the last time that something went wrong with it, and what. */
import { endpointOf } from './connection.ts';
import type { RouterAddress, RouterError, RouterResult } from './ports.ts';

/** Routers that are remembered; beyond that, those with which nothing went wrong for the longest time are forgotten. */
const KEPT_ROUTERS = 1_024;

export interface LastError {
  error: RouterError;
  at: Date;
}

export interface RouterReports {
  /** Notes what went wrong, and hands everything on. */
  noted<T>(address: RouterAddress, answer: Promise<RouterResult<T>>): Promise<RouterResult<T>>;
  notedAll<T>(address: RouterAddress, answers: readonly RouterResult<T>[]): void;
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
    async noted(address, answer) {
      const result = await answer;
      note(address, result);
      return result;
    },
    notedAll: (address, answers) => answers.forEach((answer) => note(address, answer)),
    lastErrorOf: (address) => errors.get(endpointOf(address)),
  };
}

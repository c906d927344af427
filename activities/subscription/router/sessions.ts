/**
 * Sessions that are kept: one for each user and router, held open and asked again. One that breaks is opened again when it
 * is wanted, not all of a router's at the same moment.
 *
 * Each router opens a few sessions at the same time, and no router waits for another. When one session cannot be opened, the
 * sessions that wait for the same router fail with it; until the router answers, it is tried by one session at a time.
 */
import { tracingChannel } from 'node:diagnostics_channel';
import { setTimeout as delay } from 'node:timers/promises';
import type { LimitFunction } from 'p-limit';
import pLimit from 'p-limit';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { endpointOf } from '../../../api/subscription/router-address.ts';
import { isRetried } from './ports.ts';
import type { RouterAddress, RouterError, RouterResult } from './ports.ts';
import { ConnectError, connectToRouter } from './connect.ts';
import type { RouterSession, SessionAnswer, SessionCommand, SessionOptions } from './session.ts';
import { beginSession } from './session.ts';

/** Sessions that are kept; beyond that, the sessions that were idle longest are closed. */
const KEPT_SESSIONS = 256;
/** Sessions with one router that are opened at the same time. */
const OPENED_TOGETHER = 8;
/** Before a session is opened again: up to so much, twice as much after each failure, ms. */
const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 10_000;

/** For those who watch a process as they watch its HTTP requests: each batch of commands, and when it is answered. */
const exchanges = tracingChannel<unknown, { commands: readonly SessionCommand[] }>(
  'galaxy-notify:router-commands',
);

/** A router as it is reached. It is remembered for as long as a session of it is. */
interface Endpoint {
  name: string;
  opening: LimitFunction;
  /** In a row. */
  failures: number;
  lastFailure?: unknown;
  /** By `performance.now()`: a clock that is set back must not hold it up. */
  notBefore: number;
}

interface Kept {
  endpoint: Endpoint;
  session?: Promise<RouterSession>;
  /** Commands that are asked, or wait to be. */
  asking: number;
}

export function createRouterSessions(protocol: RouterProtocol, options: Partial<SessionOptions> = {}) {
  const closing = new AbortController();
  const settings: SessionOptions = {
    timeoutMs: options.timeoutMs ?? 45_000,
    commandTimeoutMs: options.commandTimeoutMs ?? 30_000,
    pingIntervalMs: options.pingIntervalMs ?? 600_000,
    signal: closing.signal,
  };
  /** In the order of their last use. */
  const kept = new Map<string, Kept>();

  function keptOf(user: string, address: RouterAddress): Kept {
    const name = endpointOf(address);
    const key = `${user} ${name}`;
    const one = kept.get(key) ?? { endpoint: endpointNamed(name), asking: 0 };
    kept.delete(key);
    kept.set(key, one);
    for (const [idleKey, idle] of kept) {
      if (kept.size <= KEPT_SESSIONS) break;
      if (idle.asking > 0 || idleKey === key) continue;
      kept.delete(idleKey);
      // One that is just being opened may fail, which its opener is told.
      idle.session?.then((session) => session.close()).catch(() => undefined);
    }
    return one;
  }

  function endpointNamed(name: string): Endpoint {
    for (const { endpoint } of kept.values()) if (endpoint.name === name) return endpoint;
    const opening = pLimit({ concurrency: OPENED_TOGETHER, rejectOnClear: true });
    return { name, opening, failures: 0, notBefore: 0 };
  }

  function sessionOf(one: Kept, address: RouterAddress): Promise<RouterSession> {
    one.session ??= open(one, address);
    return one.session;
  }

  async function open(one: Kept, address: RouterAddress): Promise<RouterSession> {
    const { endpoint } = one;
    try {
      const session = await endpoint.opening(() => connect(endpoint, address));
      void session.ended.then(() => {
        delayNext(endpoint, FIRST_DELAY_MS);
        delete one.session;
      });
      return session;
    } catch (error) {
      delete one.session;
      throw error instanceof ConnectError ? error : (endpoint.lastFailure ?? error);
    }
  }

  async function connect(endpoint: Endpoint, address: RouterAddress): Promise<RouterSession> {
    try {
      const waitMs = endpoint.notBefore - performance.now();
      if (waitMs > 0) await delay(waitMs, undefined, { signal: closing.signal });
      const { socket, binding } = await connectToRouter(protocol, address, settings);
      const session = beginSession(protocol, socket, binding, settings);
      endpoint.failures = 0;
      endpoint.opening.concurrency = OPENED_TOGETHER;
      if (closing.signal.aborted) session.close();
      return session;
    } catch (error) {
      delayNext(endpoint, FIRST_DELAY_MS * 2 ** endpoint.failures);
      endpoint.failures += 1;
      endpoint.lastFailure = error;
      if (isRetried(errorOf(error))) {
        endpoint.opening.concurrency = 1;
        endpoint.opening.clearQueue();
      }
      throw error;
    }
  }

  function delayNext(endpoint: Endpoint, longestMs: number): void {
    endpoint.notBefore = performance.now() + Math.random() * Math.min(LONGEST_DELAY_MS, longestMs);
  }

  function errorOf(error: unknown): RouterError {
    if (closing.signal.aborted) return INACTIVE;
    if (error instanceof ConnectError) return error.error;
    throw error;
  }

  return {
    /**
     * @param user batches of different users share no session.
     * @returns an answer for each command, in their order.
     */
    async ask(
      user: string,
      address: RouterAddress,
      commands: readonly SessionCommand[],
    ): Promise<RouterResult<SessionAnswer>[]> {
      if (closing.signal.aborted) return failAll(commands, INACTIVE);
      const one = keptOf(user, address);
      one.asking += 1;
      try {
        const session = await sessionOf(one, address);
        return await exchanges.tracePromise(() => session.ask(commands), { commands });
      } catch (error) {
        return failAll(commands, errorOf(error));
      } finally {
        one.asking -= 1;
      }
    },

    /** Ends every session; commands under way come out as `AGENT INACTIVE`. */
    async close(): Promise<void> {
      closing.abort();
      const sessions = [...kept.values()].flatMap(({ session }) => (session ? [session] : []));
      kept.clear();
      for (const result of await Promise.allSettled(sessions)) {
        if (result.status === 'fulfilled') result.value.close();
      }
    },
  };
}

const INACTIVE: RouterError = { source: 'AGENT', code: 'INACTIVE' };

const failAll = (commands: readonly SessionCommand[], error: RouterError): RouterResult<SessionAnswer>[] =>
  commands.map(() => ({ ok: false, error }));

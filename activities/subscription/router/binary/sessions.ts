/**
 * Sessions that are kept: one for each user and router, held open and asked again. One that breaks is opened anew when
 * it is wanted, not all of a router's at the same moment.
 */
import { tracingChannel } from 'node:diagnostics_channel';
import { setTimeout as delay } from 'node:timers/promises';
import type { RouterProtocol } from '../../../../api/subscription/router-wire.ts';
import { endpointOf } from '../../../../api/subscription/router-address.ts';
import { isRetried } from '../errors.ts';
import type { RouterAddress, RouterError, RouterResult } from '../ports.ts';
import { createRouterTurns } from '../turns.ts';
import type { ConnectOptions } from './connect.ts';
import { ConnectError } from './connect.ts';
import { openSession } from './open-session.ts';
import type {
  RouterSession,
  SessionAnswer,
  SessionCommand,
  SessionFacts,
  SessionOptions,
} from './session.ts';

/** Sessions that are kept; beyond that, the sessions that were idle longest are closed. */
const KEPT_SESSIONS = 256;
/** Before a session is opened again: up to so much, twice as much after each failure, ms. */
const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 10_000;

/** For those who watch a process as they watch its HTTP requests: each batch of commands, and when it is answered. */
const exchanges = tracingChannel<unknown, { commands: readonly SessionCommand[] }>(
  'galaxy-notify:router-commands',
);

export interface RouterSessionsOptions extends Partial<SessionOptions> {
  socksProxy?: ConnectOptions['socksProxy'];
}

export interface RouterSessions {
  /**
   * @param user batches of different users share no session.
   * @returns an answer for each command, in their order.
   */
  ask(
    user: string,
    address: RouterAddress,
    commands: readonly SessionCommand[],
  ): Promise<RouterResult<SessionAnswer>[]>;
  /** Opens a session if there is none. */
  factsOf(user: string, address: RouterAddress): Promise<RouterResult<SessionFacts>>;
  /** The sessions that are held with a router now, of all users. */
  heldWith(address: RouterAddress): SessionFacts[];
  /** Ends every session; commands under way come out as `AGENT INACTIVE`. */
  close(): Promise<void>;
}

interface Kept {
  endpoint: string;
  session?: Promise<RouterSession>;
  /** Once it is open. */
  facts?: SessionFacts;
  /** Commands that are asked, or wait to be. */
  asking: number;
  failures: number;
  /** By `performance.now()`: a clock that is set back must not hold it up. */
  notBefore: number;
}

export function createRouterSessions(
  protocol: RouterProtocol,
  options: RouterSessionsOptions = {},
): RouterSessions {
  const closing = new AbortController();
  const settings: SessionOptions = {
    timeoutMs: options.timeoutMs ?? 45_000,
    commandTimeoutMs: options.commandTimeoutMs ?? 30_000,
    pingIntervalMs: options.pingIntervalMs ?? 600_000,
    socksProxy: options.socksProxy,
    signal: closing.signal,
  };
  const turns = createRouterTurns();
  /** In the order of their last use. */
  const kept = new Map<string, Kept>();

  function keptOf(user: string, address: RouterAddress): Kept {
    const endpoint = endpointOf(address);
    const key = `${user} ${endpoint}`;
    const one = kept.get(key) ?? { endpoint, asking: 0, failures: 0, notBefore: 0 };
    kept.delete(key);
    kept.set(key, one);
    for (const [idleKey, idle] of kept) {
      if (kept.size <= KEPT_SESSIONS) break;
      if (idle.asking > 0 || idleKey === key) continue;
      kept.delete(idleKey);
      // One that is just being opened may fail, which whoever opened it is told.
      idle.session?.then((session) => session.close()).catch(() => undefined);
    }
    return one;
  }

  function sessionOf(one: Kept, address: RouterAddress): Promise<RouterSession> {
    one.session ??= open(one, address);
    return one.session;
  }

  async function open(one: Kept, address: RouterAddress): Promise<RouterSession> {
    try {
      const waitMs = one.notBefore - performance.now();
      if (waitMs > 0) await delay(waitMs, undefined, { signal: closing.signal });
      const session = await openSession(protocol, address, settings);
      one.failures = 0;
      one.facts = session.facts;
      void session.ended.then(() => forget(one));
      if (closing.signal.aborted) session.close();
      return session;
    } catch (error) {
      forget(one);
      throw error;
    }
  }

  function forget(one: Kept): void {
    const longest = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** one.failures);
    one.failures += 1;
    one.notBefore = performance.now() + Math.random() * longest;
    delete one.session;
    delete one.facts;
  }

  /** @returns with `silent`, nothing came from the router at all. */
  async function askSession(
    one: Kept,
    address: RouterAddress,
    commands: readonly SessionCommand[],
  ): Promise<{ value: RouterResult<SessionAnswer>[]; silent?: RouterError }> {
    let session: RouterSession;
    try {
      session = await sessionOf(one, address);
    } catch (error) {
      const failure = errorOf(error);
      return { value: failAll(commands, failure), ...(isRetried(failure) ? { silent: failure } : {}) };
    }
    const value = await exchanges.tracePromise(() => session.ask(commands), { commands });
    const [first] = value;
    const isSilent = value.every((result) => !result.ok && isRetried(result.error));
    return { value, ...(isSilent && first?.ok === false ? { silent: first.error } : {}) };
  }

  function errorOf(error: unknown): RouterError {
    if (closing.signal.aborted) return INACTIVE;
    if (error instanceof ConnectError) return error.error;
    throw error;
  }

  return {
    async ask(user, address, commands) {
      if (closing.signal.aborted) return failAll(commands, INACTIVE);
      const one = keptOf(user, address);
      one.asking += 1;
      try {
        const outcome = await turns.take(endpointOf(address), user, () => askSession(one, address, commands));
        return 'value' in outcome ? outcome.value : failAll(commands, outcome.silent);
      } finally {
        one.asking -= 1;
      }
    },

    async factsOf(user, address) {
      try {
        const { facts } = await sessionOf(keptOf(user, address), address);
        return { ok: true, value: facts };
      } catch (error) {
        return { ok: false, error: errorOf(error) };
      }
    },

    heldWith(address) {
      const endpoint = endpointOf(address);
      return [...kept.values()].flatMap((one) => (one.endpoint === endpoint && one.facts ? [one.facts] : []));
    },

    async close() {
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

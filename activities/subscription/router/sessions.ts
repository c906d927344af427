/**
 * Sessions that are kept: one for each user and router, held open and asked again. One that breaks is opened again when it
 * is wanted, not all of a router's at the same moment.
 *
 * Each endpoint has its own turns, and no endpoint waits for another: a router that does not answer holds up nobody but those
 * who want it. And those not for long: whoever waits for it when it turns out to be silent hears so immediately, instead of
 * finding out for himself after another time-out.
 */
import { tracingChannel } from 'node:diagnostics_channel';
import { setTimeout as delay } from 'node:timers/promises';
import type { RouterProtocol } from '../../../api/subscription/router-wire.ts';
import { endpointOf } from '../../../api/subscription/router-address.ts';
import { isRetried } from './ports.ts';
import type { RouterAddress, RouterError, RouterResult } from './ports.ts';
import type { ConnectOptions } from './connect.ts';
import { ConnectError, connectToRouter } from './connect.ts';
import type {
  RouterSession,
  SessionAnswer,
  SessionCommand,
  SessionFacts,
  SessionOptions,
} from './session.ts';
import { beginSession } from './session.ts';

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

export function createRouterSessions(protocol: RouterProtocol, options: RouterSessionsOptions = {}) {
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
      const { socket, host, binding, routerVersions } = await connectToRouter(protocol, address, settings);
      const session = beginSession(protocol, { socket, host }, binding, routerVersions, settings);
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
        const outcome = await turns.take(endpointOf(address), user, () => askSession(one, address, commands));
        return 'value' in outcome ? outcome.value : failAll(commands, outcome.silent);
      } finally {
        one.asking -= 1;
      }
    },

    /** Opens a session if there is none. */
    async factsOf(user: string, address: RouterAddress): Promise<RouterResult<SessionFacts>> {
      try {
        const { facts } = await sessionOf(keptOf(user, address), address);
        return { ok: true, value: facts };
      } catch (error) {
        return { ok: false, error: errorOf(error) };
      }
    },

    /** The sessions that are held with a router now, of all users. */
    heldWith(address: RouterAddress): SessionFacts[] {
      const endpoint = endpointOf(address);
      return [...kept.values()].flatMap((one) => (one.endpoint === endpoint && one.facts ? [one.facts] : []));
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

/** Batches that one endpoint is asked at the same time. */
const AT_ONCE = 8;
/** Of these, from one session: as many as it has connections. */
const AT_ONCE_OF_SESSION = 4;
/** A router that was silent is asked one at a time until it answers. */
const AT_ONCE_WHILE_SILENT = 1;
/** Endpoints known to be silent that are remembered; beyond that, the ones found silent first are forgotten. */
const KEPT_ENDPOINTS = 1_024;

interface Endpoint {
  running: number;
  bySession: Map<string, number>;
  waiting: Waiting[];
  /** Times that it has answered; compared, not counted. */
  answers: number;
  isSilent: boolean;
}

interface Waiting {
  session: string;
  begin: () => void;
  giveUp: (silent: RouterError) => void;
}

function createRouterTurns() {
  const endpoints = new Map<string, Endpoint>();

  function endpointNamed(name: string): Endpoint {
    const known = endpoints.get(name);
    if (known) return known;
    const fresh: Endpoint = {
      running: 0,
      bySession: new Map(),
      waiting: [],
      answers: 0,
      isSilent: false,
    };
    endpoints.set(name, fresh);
    for (const [other, endpoint] of endpoints) {
      if (endpoints.size <= KEPT_ENDPOINTS) break;
      if (isIdle(endpoint) && other !== name) endpoints.delete(other);
    }
    return fresh;
  }

  return {
    /**
     * Does work on an endpoint when it is its turn.
     *
     * @param work says in `silent` why the router said nothing at all, if it did not.
     * @returns what the work returns, or why nobody gets an answer from there at present.
     */
    async take<T>(
      name: string,
      session: string,
      work: () => Promise<{ value: T; silent?: RouterError }>,
    ): Promise<{ value: T } | { silent: RouterError }> {
      const endpoint = endpointNamed(name);
      const silentBefore = await new Promise<RouterError | undefined>((resolve) => {
        endpoint.waiting.push({ session, begin: () => resolve(undefined), giveUp: resolve });
        beginNext(endpoint);
      });
      if (silentBefore) return { silent: silentBefore };
      const { answers } = endpoint;
      try {
        const { value, silent } = await work();
        if (!silent) {
          endpoint.answers += 1;
          endpoint.isSilent = false;
        } else if (endpoint.answers === answers) {
          // Nobody else has heard from it meanwhile either.
          endpoint.isSilent = true;
          for (const { giveUp } of endpoint.waiting.splice(0)) giveUp(silent);
        }
        return { value };
      } finally {
        endTurn(endpoint, session);
        beginNext(endpoint);
        if (isIdle(endpoint) && !endpoint.isSilent) endpoints.delete(name);
      }
    },
  };
}

/** Begins those that may begin, the longest waiting first. */
function beginNext(endpoint: Endpoint): void {
  const { waiting, bySession } = endpoint;
  const atOnce = endpoint.isSilent ? AT_ONCE_WHILE_SILENT : AT_ONCE;
  while (endpoint.running < atOnce) {
    const index = waiting.findIndex(({ session }) => (bySession.get(session) ?? 0) < AT_ONCE_OF_SESSION);
    const [next] = index === -1 ? [] : waiting.splice(index, 1);
    if (!next) return;
    endpoint.running += 1;
    bySession.set(next.session, (bySession.get(next.session) ?? 0) + 1);
    next.begin();
  }
}

function endTurn(endpoint: Endpoint, session: string): void {
  const { bySession } = endpoint;
  const left = bySession.get(session)! - 1;
  endpoint.running -= 1;
  if (left === 0) bySession.delete(session);
  else bySession.set(session, left);
}

const isIdle = ({ running, waiting }: Endpoint): boolean => running === 0 && waiting.length === 0;

/**
 * Sessions with routers: commands in blocks, answers found by their correlation ids. Whatever a router sends ends in
 * an answer, or ends the session with an error that says why; a session holds a bounded number of commands, and keeps
 * nothing of what was not asked for.
 */
import { randomBytes } from 'node:crypto';
import { tracingChannel } from 'node:diagnostics_channel';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { LimitFunction } from 'p-limit';
import pLimit from 'p-limit';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { endpointOf } from '../../../api/subscription/router-address.ts';
import { reasonOf } from '../../reason.ts';
import type { RawKey, RouterAddress, RouterError, RouterResult } from './ports.ts';
import { isRetried } from './ports.ts';
import type { BinaryAnswer, BinaryCommand } from './words.ts';
import { readAnswer, encodeCommand } from './words.ts';
import type { ConnectOptions } from './connect.ts';
import { ConnectError, connectToRouter } from './connect.ts';
import {
  MalformedError,
  createBlockReader,
  padBlock,
  unpadBlock,
  CORRELATION_BYTES,
  encodeTransmission,
  packTransmissions,
  roomOf,
  unpackTransmissions,
} from './blocks.ts';
import type { SessionBinding, Transmission } from './blocks.ts';

/** Commands that wait for their answers; further ones wait until there is room. */
const MOST_WAITING = 512;
/** Answers that came too late may still come, each once. */
const MOST_LATE = 4_096;
/** Unasked transmissions of a router between two answers; a router that sends more floods. */
const MOST_UNASKED = 1_000;
/** What a router has not taken yet: more than all commands that wait have, so it takes nothing. */
const MOST_UNREAD_BYTES = 16 * 1024 * 1024;
/** A router that is silent to this many PINGs is gone. */
const MOST_MISSED_PINGS = 3;
const NOTHING = Buffer.alloc(0);

export interface SessionOptions extends ConnectOptions {
  /** For the answer to a command, from the time that it is sent, ms. */
  commandTimeoutMs: number;
  /** A router that says nothing for so long is asked whether it is there, ms. */
  pingIntervalMs: number;
}

export interface SessionCommand {
  /** The queue, token or subscription that it is about. */
  entityId?: Buffer;
  command: BinaryCommand;
  /** Without one it goes without authorization. */
  key?: RawKey;
}

export type SessionAnswer = Exclude<BinaryAnswer, { op: 'ERR' }>;

type RouterSession = ReturnType<typeof beginSession>;

interface Waiting {
  entityId: Buffer;
  settle: (result: RouterResult<SessionAnswer>) => void;
}

/** @param socket on which both sides have said hello. */
export function beginSession(
  protocol: RouterProtocol,
  socket: Duplex,
  binding: SessionBinding,
  { commandTimeoutMs, pingIntervalMs }: SessionOptions,
) {
  const waiting = new Map<string, Waiting>();
  /** Correlation ids of commands whose time was up. */
  const late = new Set<string>();
  const wantRoom: (() => void)[] = [];
  const { promise: ended, resolve: tellEnd } = Promise.withResolvers<RouterError>();
  let end: RouterError | undefined;
  let unasked = 0;
  /** How many transmissions have come, and when the last one did, by the monotonic clock. */
  let heard = 0;
  let lastHeard = performance.now();
  let missedPings = 0;

  function finish(error: RouterError): void {
    if (end) return;
    end = error;
    clearInterval(keepAlive);
    socket.destroy();
    for (const { settle } of [...waiting.values()]) settle({ ok: false, error });
    for (const goOn of wantRoom.splice(0)) goOn();
    tellEnd(error);
  }

  function takeBlock(block: Buffer): void {
    if (end) return;
    try {
      for (const transmission of unpackTransmissions(unpadBlock(block), binding)) {
        takeTransmission(transmission);
      }
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      finish(broker('RESPONSE', error.message));
    }
  }

  function takeTransmission({ correlationId, entityId, content }: Transmission): void {
    heard += 1;
    lastHeard = performance.now();
    missedPings = 0;
    const answer = readAnswer(protocol, content);
    if (correlationId.length === 0) {
      takeUnasked(answer);
      return;
    }
    const id = correlationId.toString('base64url');
    const asked = waiting.get(id);
    if (!asked) {
      if (!late.delete(id)) throw new MalformedError('an answer is to no command');
      return;
    }
    const isAbout = asked.entityId.equals(entityId) || (answer.op === 'ERR' && entityId.length === 0);
    if (!isAbout) throw new MalformedError('an answer is about something else than the question');
    unasked = 0;
    asked.settle(answer.op === 'ERR' ? { ok: false, error: answer.error } : { ok: true, value: answer });
  }

  /** Messages and ends of subscriptions: the next check asks again. */
  function takeUnasked(answer: BinaryAnswer): void {
    // It could not tell which command it did not understand.
    if (answer.op === 'ERR') finish(answer.error);
    else if (!UNASKED.has(answer.op)) throw new MalformedError('an answer has no question');
    unasked += 1;
    if (unasked > MOST_UNASKED) throw new MalformedError('more is told than anybody asked for');
  }

  /** Room for so many commands, or the end of the session. */
  async function roomFor(count: number): Promise<void> {
    while (!end && waiting.size > 0 && waiting.size + count > MOST_WAITING) {
      await new Promise<void>((goOn) => wantRoom.push(goOn));
    }
  }

  /** @param isPatient whether no answer to it means nothing by itself. */
  function wait(
    id: string,
    entityId: Buffer,
    isPatient: boolean,
    done: (result: RouterResult<SessionAnswer>) => void,
  ): void {
    const heardBefore = heard;
    const timer = setTimeout(() => {
      late.add(id);
      for (const oldest of late) {
        if (late.size <= MOST_LATE) break;
        late.delete(oldest);
      }
      const error = broker('TIMEOUT', `no answer within ${commandTimeoutMs} ms`);
      waiting.get(id)?.settle({ ok: false, error });
      // No other command has heard from it meanwhile either.
      if (heard === heardBefore && !isPatient) finish(error);
    }, commandTimeoutMs);
    waiting.set(id, {
      entityId,
      settle(result) {
        clearTimeout(timer);
        waiting.delete(id);
        for (const goOn of wantRoom.splice(0)) goOn();
        done(result);
      },
    });
  }

  async function ask(
    commands: readonly SessionCommand[],
    isPatient = false,
  ): Promise<RouterResult<SessionAnswer>[]> {
    const results: Promise<RouterResult<SessionAnswer>>[] = [];
    const sendable: { bytes: Buffer; send: () => void; fail: (error: RouterError) => void }[] = [];
    for (const { entityId = NOTHING, command, key } of commands) {
      const correlationId = randomBytes(CORRELATION_BYTES);
      const { promise, resolve } = Promise.withResolvers<RouterResult<SessionAnswer>>();
      results.push(promise);
      const fail = (error: RouterError): void => resolve({ ok: false, error });
      try {
        const content = encodeCommand(command);
        const bytes = encodeTransmission({ correlationId, entityId, content }, binding, key);
        if (bytes.length > roomOf(binding)) fail(broker('TRANSPORT', `${command.op} is larger than a block`));
        else {
          const id = correlationId.toString('base64url');
          sendable.push({ bytes, fail, send: () => wait(id, entityId, isPatient, resolve) });
        }
      } catch (error) {
        fail(broker('TRANSPORT', `${command.op}: ${reasonOf(error)}`));
      }
    }
    let next = 0;
    for (const { content, count } of packTransmissions(
      sendable.map(({ bytes }) => bytes),
      binding,
    )) {
      await roomFor(count);
      const block = sendable.slice(next, next + count);
      next += count;
      for (const { send, fail } of block) {
        if (end) fail(end);
        else send();
      }
      if (!end) socket.write(padBlock(content, binding.facts.blockBytes));
      if (socket.writableLength > MOST_UNREAD_BYTES) finish(broker('TIMEOUT', 'the router reads nothing'));
    }
    return Promise.all(results);
  }

  const keepAlive = setInterval(() => {
    if (performance.now() - lastHeard < pingIntervalMs) return;
    if (missedPings === MOST_MISSED_PINGS) finish(broker('TIMEOUT', 'no answer to PING'));
    else {
      missedPings += 1;
      void ask([{ command: { op: 'PING' } }], true);
    }
  }, pingIntervalMs).unref();

  socket.on('data', createBlockReader(binding.facts.blockBytes, takeBlock));
  socket.on('error', (error: Error) => finish(broker('NETWORK', error.message)));
  const closed = (): void => finish(broker('NETWORK', 'the router has closed the connection'));
  socket.once('end', closed);
  socket.once('close', closed);
  if (socket.destroyed) closed();
  return {
    /** Commands that wait for their answers. */
    get waiting() {
      return waiting.size;
    },
    /** @returns an answer for each command, in their order. */
    ask: (commands: readonly SessionCommand[]) => ask(commands),
    /** Why it ended, once it has. */
    ended,
    close: () => finish({ source: 'AGENT', code: 'INACTIVE' }),
  };
}

const UNASKED: ReadonlySet<string> = new Set(['MSG', 'END', 'DELD']);

const broker = (code: string, detail: string): RouterError => ({ source: 'BROKER', code, detail });

// --- Sessions that are kept --------------------------------------------------------------------------------------

// One for each user and router, held open and asked again. One that breaks is opened again when it is wanted, not all of a
// router's at the same moment.
//
// Each router opens a few sessions at the same time, and no router waits for another. When one session cannot be opened, the
// sessions that wait for the same router fail with it; until the router answers, it is tried by one session at a time.

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

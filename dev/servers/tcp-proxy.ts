/**
 * A TCP proxy on the loopback that spoils connections on command: the network between the service and its servers, for
 * tests of what happens when it fails. It knows nothing of the protocols that pass it.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { LOOPBACK, freePort } from './ports.ts';

/** How the proxy treats connections from now on. */
export type ProxyMode =
  /** All passes. */
  | { kind: 'open' }
  /** No process listens: attempts to connect are refused. Connections that exist go on; see {@link TcpProxy.cut}. */
  | { kind: 'refuse' }
  /** What passes, either way, passes this many milliseconds later, in order. */
  | { kind: 'delay'; ms: number }
  /**
   * A slow link: each connection carries so many bytes a second in each direction, in order, and what it carries arrives
   * this many milliseconds later besides; default 0.
   */
  | { kind: 'narrow'; bytesPerSecond: number; ms?: number }
  /**
   * Connections look alive, and what is sent in the silent direction is swallowed: as when the other machine has gone
   * without a word. Attempts to connect are accepted and fare no better. A connection that was there at that time stays
   * so until its client closes it, also when the mode ends: bytes are missing in it.
   */
  | { kind: 'half-open'; silent: SilentDirection };

/** Seen from the client: what it asks, what it is answered, or all of it. */
export type SilentDirection = 'requests' | 'answers' | 'both';

export interface TcpProxy {
  /** Where clients connect to. */
  host: string;
  port: number;
  /** Connections of clients that are open now. */
  readonly connections: number;
  /** Bytes that are delayed at present. */
  readonly delayedBytes: number;
  /** Bytes that servers have answered so far, all connections together. */
  readonly answeredBytes: number;
  /** From now on, new connections lead to another server; those that are open stay where they are. */
  moveTo(target: { host: string; port: number }): void;
  set(mode: ProxyMode): Promise<void>;
  /** Resets every connection that is open. @returns how many. */
  cut(): number;
  /** Ends all, without a word to anybody about why. */
  stop(): Promise<void>;
}

/** The system may take a moment to give a port back that was listened on. */
const LISTEN_ATTEMPTS = 100;
const LISTEN_PAUSE_MS = 50;
/** Bytes that wait in one direction before its sender is not read on. */
const MAX_WAITING_BYTES = 1 << 20;

/**
 * Starts a proxy on a free port.
 *
 * @param target where connections lead to; looked up for each, so that what listens there may come and go.
 */
export async function startTcpProxy(target: { host: string; port: number }): Promise<TcpProxy> {
  let upstream = target;
  let answeredBytes = 0;
  const countAnswer = (bytes: number) => void (answeredBytes += bytes);
  let mode: ProxyMode = { kind: 'open' };
  const pairs = new Set<Pair>();

  const accept = (client: Socket): void => {
    const pair = joined(client, connect({ ...upstream, allowHalfOpen: true }), () => mode, countAnswer);
    pairs.add(pair);
    void pair.closed.then(() => pairs.delete(pair));
    if (mode.kind === 'half-open') pair.silence(mode.silent);
  };
  // It listens again after it refused.
  const port = await freePort();
  let server = await listen(port, accept);

  return {
    host: LOOPBACK,
    port,
    get connections() {
      return pairs.size;
    },
    get delayedBytes() {
      return [...pairs].reduce((sum, pair) => sum + pair.delayedBytes(), 0);
    },
    get answeredBytes() {
      return answeredBytes;
    },
    moveTo(next) {
      upstream = next;
    },
    async set(next) {
      mode = next;
      if (next.kind === 'half-open') for (const pair of pairs) pair.silence(next.silent);
      if (next.kind === 'refuse') server.close();
      else if (!server.listening) server = await listen(port, accept);
    },
    cut() {
      const count = pairs.size;
      for (const pair of pairs) pair.reset();
      return count;
    },
    async stop() {
      for (const pair of pairs) pair.reset();
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      await closed;
    },
  };
}

async function listen(port: number, accept: (client: Socket) => void) {
  for (let attempt = 1; ; attempt += 1) {
    // Half-open sockets: one side may have finished speaking while it still listens.
    const server = createServer({ allowHalfOpen: true, noDelay: true }, accept);
    server.listen(port, LOOPBACK);
    try {
      await once(server, 'listening');
      return server;
    } catch (error) {
      if (attempt === LISTEN_ATTEMPTS) throw error;
      await sleep(LISTEN_PAUSE_MS);
    }
  }
}

/** A client's connection and the one that was opened for it. */
interface Pair {
  delayedBytes(): number;
  silence(direction: SilentDirection): void;
  reset(): void;
  closed: Promise<unknown>;
}

function joined(
  client: Socket,
  upstream: Socket,
  modeNow: () => ProxyMode,
  countAnswer: (bytes: number) => void,
): Pair {
  upstream.setNoDelay(true);
  const requests = pump(client, upstream, modeNow);
  const answers = pump(upstream, client, modeNow, countAnswer);
  const reset = (): void => {
    for (const socket of [client, upstream]) if (!socket.destroyed) socket.resetAndDestroy();
  };
  // A server that goes away, or is not there, is news for the client; unless nothing gets through to it.
  upstream.on('error', () => {
    if (!answers.isSilent()) reset();
  });
  client.on('error', reset);
  const closed = Promise.all(
    [client, upstream].map((socket) => new Promise((resolve) => socket.once('close', resolve))),
  );
  // A client that gives up on a silent connection gets its socket back.
  client.on('end', () => {
    if (requests.isSilent() || answers.isSilent()) client.destroy();
  });
  client.once('close', () => upstream.destroy());
  upstream.once('close', () => {
    if (!answers.isSilent()) answers.finish();
  });
  return {
    delayedBytes: () => requests.delayedBytes() + answers.delayedBytes(),
    silence(direction) {
      if (direction !== 'answers') requests.silence();
      if (direction !== 'requests') answers.silence();
    },
    reset,
    closed,
  };
}

/** Passes on what one socket receives to another one, as late as the mode says, in order. */
function pump(from: Socket, to: Socket, modeNow: () => ProxyMode, count?: (bytes: number) => void) {
  const waiting: { dueAt: number; chunk: Buffer }[] = [];
  let waitingBytes = 0;
  let timer: NodeJS.Timeout | undefined;
  let isSilent = false;
  let isEnding = false;

  const deliver = (): void => {
    timer = undefined;
    const now = performance.now();
    while (waiting[0] && waiting[0].dueAt <= now) {
      const { chunk } = waiting.shift()!;
      waitingBytes -= chunk.length;
      if (!isSilent && !to.destroyed) to.write(chunk);
    }
    if (waiting[0]) timer = setTimeout(deliver, Math.max(1, waiting[0].dueAt - now));
    else if (isEnding && !isSilent && !to.destroyed) to.end();
    if (waitingBytes < MAX_WAITING_BYTES && !to.writableNeedDrain) from.resume();
  };
  const wait = (chunk: Buffer, dueAt: number): void => {
    waiting.push({ dueAt, chunk });
    waitingBytes += chunk.length;
    if (waitingBytes >= MAX_WAITING_BYTES) from.pause();
    timer ??= setTimeout(deliver, Math.max(1, dueAt - performance.now()));
  };
  to.on('drain', () => from.resume());
  to.once('close', () => {
    clearTimeout(timer);
    waiting.length = 0;
  });
  from.on('data', (chunk: Buffer) => {
    count?.(chunk.length);
    if (isSilent) return;
    const mode = modeNow();
    if (mode.kind === 'narrow') {
      const { bytesPerSecond, ms = 0 } = mode;
      const freeAt = Math.max(performance.now(), (waiting.at(-1)?.dueAt ?? 0) - ms);
      return wait(chunk, freeAt + (chunk.length / bytesPerSecond) * 1_000 + ms);
    }
    const delayMs = mode.kind === 'delay' ? mode.ms : 0;
    if (delayMs === 0 && waiting.length === 0) {
      if (!to.destroyed && !to.write(chunk)) from.pause();
      return;
    }
    // Never before what was sent earlier, also when the delay has become shorter.
    wait(chunk, Math.max(performance.now() + delayMs, waiting.at(-1)?.dueAt ?? 0));
  });
  const finish = (): void => {
    isEnding = true;
    if (waiting.length === 0 && !isSilent && !to.destroyed) to.end();
  };
  from.on('end', finish);

  return {
    silence() {
      isSilent = true;
      waiting.length = 0;
      waitingBytes = 0;
      from.resume();
    },
    isSilent: () => isSilent,
    delayedBytes: () => waitingBytes,
    finish,
  };
}

/**
 * Connections to routers: TLS to the one certificate that an address names, kept alive, at most a few for each
 * session. What goes wrong on the way to a router is told as an error of the `BROKER`, never thrown.
 */
import { createHash } from 'node:crypto';
import { TLSSocket } from 'node:tls';
import type { Dispatcher } from 'undici';
import { Pool as HttpPool, buildConnector, errors } from 'undici';
import { reasonOf } from '../../reason.ts';
import type { RouterAddress, RouterError } from './ports.ts';

/** Concurrent connections of one session; further requests wait for a free one. */
const SOCKETS_PER_SESSION = 4;
/** Sessions that are kept; beyond that, the sessions that were idle longest are closed. */
const KEPT_SESSIONS = 256;
const IDLE_SOCKET_MS = 60_000;
/** The longest line of an answer, bytes: far more than any answer to a command. */
const MAX_LINE_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

/** A request whose answer is a stream of lines. */
export interface Exchange {
  method: 'GET' | 'POST';
  path: string;
  /** JSON. */
  body?: string;
  /** For the answer as a whole, from the time that a connection is there, ms. */
  timeoutMs: number;
  /** Of the whole answer; a longer answer is invalid. */
  maxBytes: number;
  /** Called for each line as soon as it is there; of an answer with status 200 only. */
  onLine: (line: string) => void;
}

export interface RouterConnections {
  /**
   * @param session requests of different sessions share no connection.
   * @returns nothing when the answer came to its end, else why it did not.
   */
  exchange(session: string, address: RouterAddress, exchange: Exchange): Promise<RouterError | undefined>;
  /** Ends every connection; exchanges under way come out as `AGENT INACTIVE`. */
  close(): Promise<void>;
}

/** The peer has shown a certificate other than the one its address names. */
class UnknownCertificateError extends Error {
  override name = 'UnknownCertificateError';
}

/** An answer that no router gives. */
class UnusableAnswerError extends Error {
  override name = 'UnusableAnswerError';
}

class AnswerTimeoutError extends Error {
  override name = 'AnswerTimeoutError';
}

class StatusError extends Error {
  override name = 'StatusError';
  readonly status: number;

  constructor(status: number) {
    super(`status ${status}`);
    this.status = status;
  }
}

/** Fingerprint of a certificate: SHA-256 of its DER, base64url. */
export function fingerprintOf(certificate: Buffer): string {
  return createHash('sha256').update(certificate).digest('base64url');
}

/**
 * Refers to the same router over the same way; the fingerprint is no part of who a router is, but of how it is
 * reached.
 */
export const endpointOf = ({ host, port, keyHash }: RouterAddress): string => `${host}:${port}#${keyHash}`;

/** `https://host:port`. */
export const originOf = ({ host, port }: RouterAddress): string =>
  `https://${host.includes(':') ? `[${host}]` : host}:${port}`;

/**
 * Connects to a server only if its certificate has this fingerprint. Nothing is sent to another server: who signed
 * it, which names it has and how long it is valid make no difference.
 */
export function pinnedConnector(keyHash: string, timeoutMs: number): buildConnector.connector {
  // Without cached sessions: a resumed one would come without the certificate.
  const connect = buildConnector({ rejectUnauthorized: false, timeout: timeoutMs, maxCachedSessions: 0 });
  return (options, callback) =>
    connect(options, (...[error, socket]) => {
      if (error) {
        callback(error, null);
        return;
      }
      const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined;
      if (certificate && fingerprintOf(certificate.raw) === keyHash) callback(null, socket);
      else {
        socket.destroy();
        callback(new UnknownCertificateError('unknown CA'), null);
      }
    });
}

export function createRouterConnections({
  connectTimeoutMs,
}: {
  connectTimeoutMs: number;
}): RouterConnections {
  /** In the order of their last use. */
  const pools = new Map<string, { pool: HttpPool; running: number }>();
  let isClosed = false;

  function poolOf(session: string, address: RouterAddress) {
    const key = `${session} ${endpointOf(address)}`;
    const entry = pools.get(key) ?? {
      pool: new HttpPool(originOf(address), {
        connections: SOCKETS_PER_SESSION,
        pipelining: 1,
        keepAliveTimeout: IDLE_SOCKET_MS,
        // The deadline of an exchange covers both.
        headersTimeout: 0,
        bodyTimeout: 0,
        connect: pinnedConnector(address.keyHash, connectTimeoutMs),
      }),
      running: 0,
    };
    pools.delete(key);
    pools.set(key, entry);
    for (const [idleKey, { pool, running }] of pools) {
      if (pools.size <= KEPT_SESSIONS) break;
      if (running > 0 || idleKey === key) continue;
      pools.delete(idleKey);
      void pool.close();
    }
    return entry;
  }

  return {
    async exchange(session, address, exchange) {
      if (isClosed) return INACTIVE;
      const entry = poolOf(session, address);
      entry.running += 1;
      try {
        await run(entry.pool, exchange);
        return undefined;
      } catch (error) {
        return isClosed ? INACTIVE : errorOf(error);
      } finally {
        entry.running -= 1;
      }
    },
    async close() {
      isClosed = true;
      await Promise.all([...pools.values()].map(({ pool }) => pool.destroy()));
      pools.clear();
    },
  };
}

const INACTIVE: RouterError = { source: 'AGENT', code: 'INACTIVE' };

/** @throws the error that kept the answer from coming to its end. */
function run(pool: HttpPool, { method, path, body, timeoutMs, maxBytes, onLine }: Exchange): Promise<void> {
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const take = createLineReader(maxBytes, onLine);
    const handler: Dispatcher.DispatchHandler = {
      // A connection is there: connecting has another time-out.
      onRequestStart(controller) {
        timer ??= setTimeout(
          () => controller.abort(new AnswerTimeoutError(`no answer within ${timeoutMs} ms`)),
          timeoutMs,
        );
      },
      onResponseStart(controller, status) {
        if (status !== 200) controller.abort(new StatusError(status));
      },
      onResponseData(controller, chunk) {
        try {
          take(chunk);
        } catch (error) {
          controller.abort(error as Error);
        }
      },
      onResponseEnd() {
        clearTimeout(timer);
        take(undefined);
        resolve();
      },
      onResponseError(_controller, error) {
        clearTimeout(timer);
        reject(error);
      },
    };
    pool.dispatch(
      {
        method,
        path,
        headers: { accept: 'application/x-ndjson', ...(body === undefined ? {} : JSON_CONTENT) },
        body: body ?? null,
      },
      handler,
    );
  });
}

const JSON_CONTENT = { 'content-type': 'application/json' };

/** @returns takes the next chunk, undefined at the end; throws UnusableAnswerError. */
function createLineReader(maxBytes: number, onLine: (line: string) => void) {
  let rest: Buffer = Buffer.alloc(0);
  let size = 0;
  const give = (line: Buffer): void => {
    if (line.length > 0) onLine(line.toString('utf8'));
  };
  return (chunk: Buffer | undefined): void => {
    if (chunk === undefined) {
      give(rest);
      return;
    }
    size += chunk.length;
    if (size > maxBytes) throw new UnusableAnswerError(`the answer is larger than ${maxBytes} bytes`);
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (let end = rest.indexOf(NEWLINE); end !== -1; end = rest.indexOf(NEWLINE)) {
      give(rest.subarray(0, end));
      rest = rest.subarray(end + 1);
    }
    if (rest.length > MAX_LINE_BYTES) {
      throw new UnusableAnswerError(`a line of the answer is longer than ${MAX_LINE_BYTES} bytes`);
    }
  };
}

function errorOf(error: unknown): RouterError {
  const broker = (code: string, detail: string): RouterError => ({ source: 'BROKER', code, detail });
  const { code } = error as NodeJS.ErrnoException;
  if (error instanceof AnswerTimeoutError) return broker('TIMEOUT', error.message);
  if (error instanceof StatusError) return errorOfStatus(error.status);
  if (error instanceof UnusableAnswerError) return broker('RESPONSE', error.message);
  if (error instanceof errors.HTTPParserError || error instanceof errors.HeadersOverflowError) {
    return broker('RESPONSE', 'the answer is not HTTP');
  }
  if (code === 'ENOTFOUND') return broker('HOST', reasonOf(error));
  return broker('NETWORK', reasonOf(error) || (code ?? 'unknown'));
}

function errorOfStatus(status: number): RouterError {
  const detail = `status ${status}`;
  // What a router says in HTTP when a request has another version than its own.
  if (status === 426) return { source: 'BROKER', code: 'VERSION', detail };
  // From a router that is starting or stopping, or from something in front of it; it has decided nothing.
  const code = status >= 500 || status === 429 ? 'NETWORK' : 'UNEXPECTED';
  return { source: 'BROKER', code, detail };
}

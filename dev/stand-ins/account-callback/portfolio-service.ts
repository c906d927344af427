/**
 * A stand-in for the portfolio service: takes account callbacks on a real HTTP server, made of the receiver that a real
 * one uses. It records what it was sent; failures can be scripted for tests.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { CallbackBody, CallbackKey, CallbackKind } from '../../../api/account-callback/callback.ts';
import { parseCallbackPath } from '../../../api/account-callback/callback.ts';
import {
  createCallbackReceiver,
  MAX_CALLBACK_BYTES,
  memoryCallbackStore,
} from '../../../client/account-callback/receiver.ts';
import type { CallerProof } from '../../../client/webhook-proof.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../../config/caller.ts';
import type { DelayedAnswer, HeldAnswer } from '../failure-scripts.ts';
import { answerIsDue, createFailureScripts } from '../failure-scripts.ts';
import { assertPortFree, LOOPBACK } from '../../servers/ports.ts';

const SILENT = { info: () => undefined, error: () => undefined };

/** How a callback goes wrong. */
export type PortfolioFailure =
  /** The status, and the callback is not applied; quoted when asked for. */
  | { kind: 'status'; status: number; location?: string; isQuoted?: true }
  /** No answer until {@link PortfolioStandIn.heal}, which resets the connection. */
  | { kind: 'hang' }
  | DelayedAnswer
  | HeldAnswer
  /** The connection is reset before any answer. */
  | { kind: 'reset' }
  /** The callback is applied, and the connection reset: the sender cannot know. */
  | { kind: 'lost-answer' };

export interface PortfolioFailureScript {
  failure: PortfolioFailure;
  /** Default: every user. */
  userId?: string;
  /** How many callbacks fail; default: all until {@link PortfolioStandIn.heal}. */
  times?: number;
}

/** A callback that was received, whatever became of it. */
export interface RecordedCallback {
  userId: string;
  kind: CallbackKind;
  idempotencyKey: string | undefined;
  /** All that were sent, names in lower case. */
  headers: IncomingMessage['headers'];
  path: string;
  body: string;
  /** It was carried out, whether the answer got through or not. */
  isApplied: boolean;
  /** Milliseconds since the epoch. */
  at: number;
  /** Answered with 2xx. */
  isAcknowledged: boolean;
}

/** The running stand-in. */
export interface PortfolioStandIn {
  /** `http://127.0.0.1:<port>`, the base URL. */
  url: string;
  /** Every callback so far, oldest first. */
  calls: readonly RecordedCallback[];
  /** What a user's portfolio was told about a period. */
  held(key: CallbackKey): CallbackBody | undefined;
  /** Adds a failure; of several that fit a callback the oldest that is not used up decides. */
  fail(script: PortfolioFailureScript): void;
  /** Removes all failures. */
  heal(): void;
  /** Forgets what it was sent. */
  forget(): void;
  /** Ends the server immediately, open connections included. */
  stop(): Promise<void>;
}

/**
 * Starts the stand-in on 127.0.0.1.
 *
 * @param options.port default 0: a free one.
 * @param options.proof default: signatures of a service without configured secrets.
 * @throws Error when the port is taken.
 */
export async function startPortfolioService({
  port = 0,
  proof = { secrets: [DEVELOPMENT_SIGNING_SECRET] },
}: { port?: number; proof?: CallerProof } = {}): Promise<PortfolioStandIn> {
  if (port !== 0) await assertPortFree(port, 'stand-in portfolio service');
  let store = memoryCallbackStore();
  let receiver = createCallbackReceiver({ store, log: SILENT, ...proof });
  const calls: RecordedCallback[] = [];
  const failures = createFailureScripts<PortfolioFailure>();
  const hanging = new Set<ServerResponse>();
  const stopping = new AbortController();

  const server = createServer((request, response) => void receive(request, response));
  server.listen(port, LOOPBACK);
  await once(server, 'listening');

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const at = Date.now();
    const path = request.url ?? '';
    const body = await bodyOf(request).catch(() => undefined);
    if (body === undefined) return;
    if (request.method !== 'POST') {
      response.writeHead(405).end();
      return;
    }
    const header = request.headers['idempotency-key'];
    const idempotencyKey = typeof header === 'string' ? header : undefined;
    const named = parseCallbackPath(path);
    const call = {
      userId: '',
      kind: 'hourly' as const,
      ...named,
      path,
      idempotencyKey,
      headers: request.headers,
      body,
      at,
    };
    const recorded: RecordedCallback = { ...call, isApplied: false, isAcknowledged: false };
    calls.push(recorded);
    const failure = named && failures.next(named.userId);
    switch (failure?.kind) {
      case 'hang':
        hanging.add(response);
        return;
      case 'reset':
        response.socket?.resetAndDestroy();
        return;
      case 'status':
        response
          .writeHead(failure.status, failure.location === undefined ? {} : { location: failure.location })
          .end(failure.isQuoted ? `this is refused: ${body}` : 'scripted failure');
        return;
      case 'delay':
      case 'hold':
        if (!(await answerIsDue(failure, stopping.signal))) return;
        break;
      case 'lost-answer':
      case undefined:
        break;
    }
    const { status, answer } = await receiver.answer({ path, headers: request.headers, body });
    recorded.isApplied = status < 300;
    if (failure?.kind === 'lost-answer') {
      response.socket?.resetAndDestroy();
      return;
    }
    recorded.isAcknowledged = status < 300;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }

  return {
    url: `http://${LOOPBACK}:${(server.address() as AddressInfo).port}`,
    calls,
    held: (key) => store.get(key),
    fail: (script) => failures.add(script, script.userId),
    heal: () => {
      failures.heal();
      for (const response of hanging) response.socket?.resetAndDestroy();
      hanging.clear();
    },
    forget: () => {
      calls.length = 0;
      store = memoryCallbackStore();
      receiver = createCallbackReceiver({ store, log: SILENT, ...proof });
    },
    async stop() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      stopping.abort();
      await closed;
    },
  };
}

/** Read up to a little more than a callback may have: the receiver then refuses it. */
async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_CALLBACK_BYTES) break;
  }
  return Buffer.concat(chunks).toString('utf8');
}

/**
 * A stand-in for the trusted User Service: the one look-up the notification service uses, on a real HTTP server, with
 * sample users for demos and scripted failures for tests.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { HeldAnswer } from '../failure-scripts.ts';
import { answerIsDue, createFailureScripts } from '../failure-scripts.ts';
import { assertPortFree, LOOPBACK } from '../../servers/ports.ts';

/** What the service needs to know about a user. */
export interface User {
  email: string;
  /** As stored by the User Service: may be empty, unsupported or invalid. */
  preferredLanguage: string;
}

/** How an answer goes wrong. */
export type UserServiceFailure =
  /** The status with an error body; 404 is what an unknown user gets. */
  | { kind: 'status'; status: number }
  | HeldAnswer
  /** The connection is reset before any answer. */
  | { kind: 'reset' }
  /** 200 with a body cut off in the middle of its JSON. */
  | { kind: 'invalid-json' }
  /** 200 with JSON that is not a user. */
  | { kind: 'wrong-shape' };

/** A failure, for whom and how often. */
export interface FailureScript {
  failure: UserServiceFailure;
  /** Default: every user. */
  userId?: string;
  /** How many requests fail; default: all until {@link UserServiceStandIn.heal}. */
  times?: number;
  /** Only each n-th request that it fits fails; default: each one. */
  every?: number;
}

/** A look-up that was received, answered or not. */
export interface RecordedRequest {
  userId: string;
  /** Milliseconds since the epoch. */
  at: number;
}

/** A running stand-in. */
export interface UserServiceStandIn {
  /** `http://127.0.0.1:<port>`, the base URL. */
  url: string;
  /** Every look-up so far, oldest first. */
  requests: readonly RecordedRequest[];
  /** Most look-ups that were being answered concurrently so far. */
  mostConcurrent(): number;
  /** Adds or replaces a user. */
  setUser(id: string, user: User): void;
  /** Makes a user unknown, a sample user and one of the rule `user-<n>` as well. */
  removeUser(id: string): void;
  /** Adds a failure; of several that fit a request the oldest that is not used up decides. */
  fail(script: FailureScript): void;
  /** Removes all failures. */
  heal(): void;
  /** Ends the server immediately, open connections included. */
  stop(): Promise<void>;
}

/** Options of {@link startUserService}. */
export interface UserServiceOptions {
  /** Loopback port; default 0: a free one. */
  port?: number;
  /** Users by id; default {@link SAMPLE_USERS}. */
  users?: Readonly<Record<string, User>>;
}

/** Users of the demo; their languages show the fallback to `en` for everything that is not supported, empty or invalid. */
export const SAMPLE_USERS: Readonly<Record<string, User>> = {
  'user-1': { email: 'ada.marlow@example.com', preferredLanguage: 'en' },
  'user-2': { email: 'jonas.keller@example.com', preferredLanguage: 'de' },
  'user-3': { email: 'camille.durand@example.com', preferredLanguage: 'fr' },
  'user-4': { email: 'lucia.romero@example.com', preferredLanguage: 'es' },
  'user-5': { email: 'noah.bennett@example.com', preferredLanguage: '' },
  'user-6': { email: 'priya.nair@example.com', preferredLanguage: 'en' },
  'user-7': { email: 'oliver.hughes@example.com', preferredLanguage: 'en-GB' },
  'user-8': { email: 'mariana.costa@example.com', preferredLanguage: 'pt-BR' },
  'user-9': { email: 'kenji.mori@example.com', preferredLanguage: 'ja' },
  'user-10': { email: 'zofia.nowak@example.com', preferredLanguage: 'pl' },
  'user-11': { email: 'emre.aydin@example.com', preferredLanguage: 'not a language' },
  'user-12': { email: 'grace.okafor@example.com', preferredLanguage: 'EN' },
};

/** `user-1` to `user-20000` always exist, so that demos and benchmarks need no list of users. */
const NUMBERED_USER = /^user-([1-9]\d{0,4})$/;
const LAST_NUMBERED_USER = 20_000;
const LOOK_UP_PATH = '/api/v1/internal/users/';

/**
 * Starts the stand-in on 127.0.0.1. `GET /api/v1/internal/users/{user_id}` answers 200
 * `{"user_id","email","preferred_language"}` or 404 `{"error":{"code":"subject_not_found","message"}}`.
 *
 * @throws Error when the port is taken.
 */
export async function startUserService(options: UserServiceOptions = {}): Promise<UserServiceStandIn> {
  const { port = 0 } = options;
  if (port !== 0) await assertPortFree(port, 'stand-in User Service');
  const users = new Map<string, User | undefined>(Object.entries(options.users ?? SAMPLE_USERS));
  const requests: RecordedRequest[] = [];
  const failures = createFailureScripts<UserServiceFailure>();
  const stopping = new AbortController();
  let [open, mostOpen] = [0, 0];

  const findUser = (id: string): User | undefined => (users.has(id) ? users.get(id) : numberedUser(id));

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const userId = requestedUser(request, response);
    if (userId === undefined) return;
    requests.push({ userId, at: Date.now() });
    open += 1;
    mostOpen = Math.max(mostOpen, open);
    response.once('close', () => (open -= 1));
    const failure = failures.next(userId);
    if (failure?.kind === 'hold' && !(await answerIsDue(failure, stopping.signal))) return;
    answer(response, userId, findUser(userId), failure);
  }

  const server = createServer((request, response) => void receive(request, response));
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, LOOPBACK, resolve);
  });

  return {
    url: `http://${LOOPBACK}:${(server.address() as AddressInfo).port}`,
    requests,
    mostConcurrent: () => mostOpen,
    setUser: (id, user) => void users.set(id, user),
    // Kept as "known to be missing", which also hides a numbered user.
    removeUser: (id) => void users.set(id, undefined),
    fail: (script) => failures.add(script, script.userId),
    heal: () => failures.heal(),
    stop: async () => {
      if (!server.listening) return;
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      stopping.abort();
      await closed;
    },
  };
}

function numberedUser(id: string): User | undefined {
  const number = Number(NUMBERED_USER.exec(id)?.[1] ?? Number.NaN);
  return number <= LAST_NUMBERED_USER ? { email: `${id}@example.com`, preferredLanguage: 'en' } : undefined;
}

/** The user a request asks for; a request that is no look-up is answered here. */
function requestedUser(request: IncomingMessage, response: ServerResponse): string | undefined {
  const { pathname } = new URL(request.url ?? '/', 'http://user-service');
  const encodedId = pathname.startsWith(LOOK_UP_PATH) ? pathname.slice(LOOK_UP_PATH.length) : '';
  if (encodedId === '' || encodedId.includes('/')) {
    sendError(response, 404, 'route_not_found', 'no such route');
    return undefined;
  }
  if (request.method !== 'GET') {
    sendError(response, 405, 'method_not_allowed', 'only GET is allowed');
    return undefined;
  }
  try {
    return decodeURIComponent(encodedId);
  } catch {
    sendError(response, 400, 'invalid_request', 'user_id is not valid percent-encoding');
    return undefined;
  }
}

function answer(
  response: ServerResponse,
  userId: string,
  user: User | undefined,
  failure: UserServiceFailure | undefined,
): void {
  switch (failure?.kind) {
    case 'reset':
      response.socket?.resetAndDestroy();
      return;
    case 'invalid-json':
      send(response, 200, '{"user_id":');
      return;
    case 'wrong-shape':
      send(response, 200, JSON.stringify({ user_id: userId, email: null, preferred_language: ['en'] }));
      return;
    case 'status':
      if (failure.status === 404) sendUnknownUser(response, userId);
      else sendError(response, failure.status, 'internal_error', 'scripted failure');
      return;
    case 'hold':
    case undefined:
      break;
  }
  if (user) {
    send(
      response,
      200,
      JSON.stringify({ user_id: userId, email: user.email, preferred_language: user.preferredLanguage }),
    );
  } else {
    sendUnknownUser(response, userId);
  }
}

function sendUnknownUser(response: ServerResponse, userId: string): void {
  sendError(response, 404, 'subject_not_found', `user ${userId} does not exist`);
}

function sendError(response: ServerResponse, status: number, code: string, message: string): void {
  send(response, status, JSON.stringify({ error: { code, message } }));
}

function send(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(body);
}

/**
 * A stand-in for Firebase Cloud Messaging: the one call that sends, HTTP/1.1 over TLS, with
 * errors in the form of the FCM v1 API and scripted failures for tests.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { DelayedAnswer, HeldAnswer } from '../failure-scripts.ts';
import { answerIsDue, createFailureScripts } from '../failure-scripts.ts';
import { createLoopbackCertificate } from '../certificate.ts';
import { assertPortFree, LOOPBACK } from '../../servers/ports.ts';

/**
 * What FCM can say about a message, by FCM's own code where it has one. The exceptions are `INVALID_TOKEN`, an
 * `INVALID_ARGUMENT` that names the token; `INVALID_PAYLOAD`, one that names a part for iOS; and `NOT_FOUND`,
 * `PERMISSION_DENIED` and `UNAUTHENTICATED`, which come from in front of FCM and concern project or credential.
 */
export type FcmError = keyof typeof FCM_ERRORS;

/** How an answer goes wrong. */
export type FcmFailure =
  /**
   * FCM's error; `retryAfter` is the value of that header, seconds or an HTTP date. With `ofPayload` it is about what is
   * shown: a probe of the token, which shows nothing, passes.
   */
  | { kind: 'error'; error: FcmError; retryAfter?: string; ofPayload?: boolean }
  /** Any answer at all, for instance HTML. */
  | { kind: 'answer'; status: number; body: string; headers?: OutgoingHttpHeaders }
  | DelayedAnswer
  | HeldAnswer
  /** The connection breaks before any answer. */
  | { kind: 'reset' }
  /** 200 and half a body, then the connection breaks. */
  | { kind: 'cut-off' };

/** A failure, for which token and how often. */
export interface FcmFailureScript {
  failure: FcmFailure;
  /** Default: every token. */
  token?: string;
  /** How many requests fail; default: all until {@link FcmStandIn.heal}. */
  times?: number;
}

/** A send that was received, answered or not. */
export interface RecordedSend {
  token: string;
  projectId: string;
  headers: IncomingHttpHeaders;
  /** The whole body, as the phone's platforms would be told. */
  body: { message: Record<string, unknown>; validate_only?: boolean };
  /** Milliseconds since the epoch. */
  at: number;
  /** Answered with 200: a phone would have it. Whether the sender got the answer is another matter. */
  isAccepted: boolean;
  /** When it was answered, or the connection was gone. */
  answeredAt?: number;
}

/** A running stand-in. */
export interface FcmStandIn {
  /** `https://127.0.0.1:<port>`. */
  url: string;
  /** The authority that its clients must trust. */
  caPem: string;
  /** Every send so far, oldest first. */
  requests: readonly RecordedSend[];
  /** Tokens that FCM was asked to check (`validate_only`), without a push. */
  probes: readonly string[];
  /** Connections: open now, the most that were open together, and opened since the start. */
  sockets: Readonly<{ open: number; highest: number; opened: number }>;
  /** Adds a failure; of several that fit a request the oldest that is not used up decides. */
  fail(script: FcmFailureScript): void;
  /** Removes all failures. */
  heal(): void;
  /** Forgets what it was sent. */
  forget(): void;
  /** Ends the server immediately, open connections included. */
  stop(): Promise<void>;
}

const SEND_PATH = /^\/v1\/projects\/([^/]+)\/messages:send$/;

/** Answers as the FCM v1 reference documents and public reports show them: HTTP status and google.rpc.Status. */
export const FCM_ERRORS = {
  UNREGISTERED: fcmError(404, 'NOT_FOUND', 'Requested entity was not found.', 'UNREGISTERED'),
  INVALID_TOKEN: fcmError(
    400,
    'INVALID_ARGUMENT',
    'The registration token is not a valid FCM registration token',
    'INVALID_ARGUMENT',
    badRequest('message.token', 'Invalid registration token'),
  ),
  INVALID_ARGUMENT: fcmError(
    400,
    'INVALID_ARGUMENT',
    'Request contains an invalid argument.',
    'INVALID_ARGUMENT',
  ),
  INVALID_PAYLOAD: fcmError(
    400,
    'INVALID_ARGUMENT',
    'Request contains an invalid argument.',
    'INVALID_ARGUMENT',
    badRequest('message.apns.payload', 'Invalid value'),
  ),
  NOT_FOUND: fcmError(404, 'NOT_FOUND', 'Requested entity was not found.'),
  SENDER_ID_MISMATCH: fcmError(403, 'PERMISSION_DENIED', 'SenderId mismatch', 'SENDER_ID_MISMATCH'),
  PERMISSION_DENIED: fcmError(403, 'PERMISSION_DENIED', 'The caller does not have permission'),
  QUOTA_EXCEEDED: fcmError(429, 'RESOURCE_EXHAUSTED', 'Quota exceeded.', 'QUOTA_EXCEEDED'),
  DEVICE_QUOTA_EXCEEDED: fcmError(429, 'RESOURCE_EXHAUSTED', 'Quota exceeded.', 'QUOTA_EXCEEDED', {
    '@type': 'type.googleapis.com/google.rpc.QuotaFailure',
    violations: [{ subject: 'device', description: 'Device message rate exceeded' }],
  }),
  UNAVAILABLE: fcmError(503, 'UNAVAILABLE', 'The service is currently unavailable.', 'UNAVAILABLE'),
  INTERNAL: fcmError(500, 'INTERNAL', 'Internal error encountered.', 'INTERNAL'),
  UNSPECIFIED_ERROR: fcmError(500, 'UNKNOWN', 'Unknown error.', 'UNSPECIFIED_ERROR'),
  THIRD_PARTY_AUTH_ERROR: fcmError(401, 'UNAUTHENTICATED', 'Auth error from APNS', 'THIRD_PARTY_AUTH_ERROR'),
  UNAUTHENTICATED: fcmError(401, 'UNAUTHENTICATED', 'Request had invalid authentication credentials.'),
} satisfies Record<string, { status: number; body: object }>;

/**
 * Starts the stand-in on 127.0.0.1, with its own certificate. `POST /v1/projects/<project>/messages:send` answers
 * 200 `{"name":"projects/<project>/messages/<id>"}`.
 *
 * @param options.port loopback port; default 0: a free one.
 * @throws Error when the port is taken.
 */
export async function startFcm({ port = 0 }: { port?: number } = {}): Promise<FcmStandIn> {
  if (port !== 0) await assertPortFree(port, 'stand-in FCM');
  const { keyPem, certPem } = await createLoopbackCertificate();
  const requests: RecordedSend[] = [];
  const probes: string[] = [];
  const sockets = { open: 0, highest: 0, opened: 0 };
  const failures = createFailureScripts<FcmFailure>();
  const stopping = new AbortController();

  const receive = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const send = await readSend(request, response);
    if (!send) return;
    if (send.body.validate_only === true) {
      probes.push(send.token);
      const failure = failures.next(send.token);
      const passes = failure?.kind === 'error' && failure.ofPayload === true;
      answer(response, send.projectId, passes ? undefined : failure);
      return;
    }
    requests.push(send);
    response.once('close', () => (send.answeredAt = Date.now()));
    const failure = failures.next(send.token);
    const isLate = failure?.kind === 'delay' || failure?.kind === 'hold';
    if (isLate && !(await answerIsDue(failure, stopping.signal))) return;
    send.isAccepted = failure === undefined || isLate;
    answer(response, send.projectId, failure);
  };

  const server = createServer({ key: keyPem, cert: certPem }, (request, response) => {
    // A client that goes away, or the end of the stand-in: no connection is left to answer on.
    receive(request, response).catch(() => response.destroy());
  });
  server.on('secureConnection', (socket) => {
    sockets.opened += 1;
    sockets.open += 1;
    sockets.highest = Math.max(sockets.highest, sockets.open);
    socket.once('close', () => (sockets.open -= 1));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, LOOPBACK, resolve);
  });

  return {
    url: `https://${LOOPBACK}:${(server.address() as AddressInfo).port}`,
    caPem: certPem,
    requests,
    probes,
    sockets,
    fail: (script) => failures.add(script, script.token),
    heal: () => failures.heal(),
    forget: () => void (requests.length = 0),
    stop: async () => {
      if (!server.listening) return;
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      stopping.abort();
      await closed;
    },
  };
}

/** The send that a request asks for; an invalid request is answered here. */
async function readSend(
  request: IncomingMessage,
  response: ServerResponse,
): Promise<RecordedSend | undefined> {
  const at = Date.now();
  const projectId = SEND_PATH.exec(request.url ?? '')?.[1];
  if (projectId === undefined || request.method !== 'POST') {
    response.writeHead(404, { 'content-type': 'text/html' }).end('<h1>404. That is an error.</h1>');
    return undefined;
  }
  const body = parseJson(await text(request)) as { message?: { token?: unknown } } | undefined;
  const token = body?.message?.token;
  if (!request.headers.authorization?.startsWith('Bearer ')) sendError(response, 'UNAUTHENTICATED');
  else if (typeof token !== 'string' || token === '') sendError(response, 'INVALID_ARGUMENT');
  else
    return {
      token,
      projectId,
      headers: request.headers,
      body: body as RecordedSend['body'],
      at,
      isAccepted: false,
    };
  return undefined;
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function answer(response: ServerResponse, projectId: string, failure: FcmFailure | undefined): void {
  const name = `projects/${projectId}/messages/${randomUUID()}`;
  switch (failure?.kind) {
    case 'reset':
      response.destroy();
      return;
    case 'cut-off':
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
      response.write('{"name":', () => response.destroy());
      return;
    case 'answer':
      response.writeHead(failure.status, { ...failure.headers }).end(failure.body);
      return;
    case 'error':
      sendError(response, failure.error, failure.retryAfter);
      return;
    case 'delay':
    case 'hold':
    case undefined:
      sendJson(response, 200, { name });
  }
}

function sendError(response: ServerResponse, error: FcmError, retryAfter?: string): void {
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
  sendJson(response, FCM_ERRORS[error].status, FCM_ERRORS[error].body);
}

function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=UTF-8' }).end(JSON.stringify(body));
}

function fcmError(httpStatus: number, status: string, message: string, code?: string, ...more: object[]) {
  const type = 'type.googleapis.com/google.firebase.fcm.v1.FcmError';
  const details = [...(code === undefined ? [] : [{ '@type': type, errorCode: code }]), ...more];
  return { status: httpStatus, body: { error: { code: httpStatus, message, status, details } } };
}

function badRequest(field: string, description: string): object {
  return {
    '@type': 'type.googleapis.com/google.rpc.BadRequest',
    fieldViolations: [{ field, description }],
  };
}

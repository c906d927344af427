/**
 * The codec server: decrypts payloads for the Temporal Web UI and the `temporal` program, which know nothing of the
 * keys (Temporal's "codec server" protocol: `POST /decode` with `{"payloads": [...]}`). It does not encode: the protocol does
 * not say which workflow a payload is for.
 *
 * Who asks is known by the access token of the Web UI, a JWT that the identity provider has signed: it says for which
 * namespaces. Each answer leaves a line in the log: who, of which workflows, never what. Only the Web UI's origin may ask from a
 * browser.
 *
 * It is a separate process, `node workers/main.ts codec-server`: no request can stop a worker.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { Payload, PayloadCodec } from '@temporalio/common';
import type { JWTPayload } from 'jose';
import { createRemoteJWKSet, errors, jwtVerify } from 'jose';
import type { Logger } from 'pino';
import { z } from 'zod';
import { reasonOf } from '../activities/reason.ts';
import { isSealed, payloadHeadOf } from '../api/payload-codec.ts';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/service.ts';
import type { ProcessContext } from './context.ts';
import { OpenParts, sayWhatIsOpen } from './context.ts';
import { createKeyProblems, openPayloadCodec } from './key-boxes.ts';
import { listen, openProbes } from './probes.ts';
import { watchFiles } from './renewal.ts';
import { startTelemetry } from './telemetry.ts';

/** A page of a history, with room to spare. Many small payloads cost more memory than their bytes. */
const MAX_BODY_BYTES = 4 * 1024 * 1024;
const MAX_PAYLOADS = 10_000;
/** Temporal's own payloads have two or three, sealed ones one more. */
const MAX_METADATA = 32;
/** Bodies that are in memory at the same time. */
const MAX_BODIES = 8;
const REQUEST_LIMIT_MS = 10_000;
/** How often Node looks for requests over the limit. */
const CHECK_EVERY_MS = 1_000;
/** Workflows that one line of the log names. */
const MOST_NAMED = 20;

interface CodecServerOptions {
  /** Undefined listens on every interface. */
  host: string | undefined;
  port: number;
  /** Origin of the Web UI, e.g. `https://temporal.example.com`; undefined: no browser may use the server. */
  allowedOrigin: string | undefined;
  /** Of the service; payloads that name no namespace are of it. */
  namespace: string;
  issuer: TokenIssuer;
  codec: PayloadCodec;
  log: Logger;
  /** Time for a head, for a request, and for a pause in an answer. */
  requestLimitMs?: number;
}

/**
 * @param config of `loadCodecConfig`.
 * @throws DependencyError, or an error of a listener; everything that was opened is closed.
 */
export async function startCodecProcess(config: Config, log: Logger) {
  const open = new OpenParts(log);
  const stop = () => open.closeAll(config.values.NOTIFICATION_SHUTDOWN_TIMEOUT);
  try {
    const telemetry = startTelemetry(config, log);
    const { meter } = telemetry;
    open.add('telemetry', () => telemetry.shutdown());
    sayWhatIsOpen(config, log);
    const context = { config, log, meter, open, renewable: [], keyProblems: createKeyProblems(meter, log) };
    const probes = await openProbes(context);
    const server = await startCodecServer(optionsOf(context));
    open.add('codec server', () => server.stop());
    watchFiles(context);
    probes.setReady(true);
    log.info({ port: server.port, probes: probes.url }, 'codec server ready');
    return { port: server.port, probesUrl: probes.url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The configuration has been checked: the address of the server requires what is said of tokens. */
function optionsOf(context: Omit<ProcessContext, 'endpoints' | 'draining'>): CodecServerOptions {
  const { config, log } = context;
  const { values, production } = config;
  const ui = values.NOTIFICATION_TEMPORAL_UI_URL;
  const { host, port } = values.NOTIFICATION_CODEC_HTTP_ADDR!;
  return {
    host: host || (production ? undefined : '127.0.0.1'),
    port,
    issuer: {
      jwksUrl: values.NOTIFICATION_CODEC_JWKS_URL!,
      issuer: values.NOTIFICATION_CODEC_ISSUER!,
      audience: values.NOTIFICATION_CODEC_AUDIENCE!,
      permissionsClaim: values.NOTIFICATION_CODEC_PERMISSIONS_CLAIM,
    },
    namespace: temporalConnection(config, undefined).namespace,
    allowedOrigin: ui === undefined ? undefined : new URL(ui).origin,
    codec: openPayloadCodec(context, 'refuse'),
    log,
  };
}

const base64 = z.base64();
const requestSchema = z.object({
  payloads: z
    .array(z.object({ metadata: z.record(z.string(), base64).optional(), data: base64.optional() }))
    .default([]),
});

/** An answer that is not a result. */
class Refusal extends Error {
  readonly status: number;
  readonly who: string | undefined;
  constructor(status: number, message: string, who?: string) {
    super(message);
    this.status = status;
    this.who = who;
  }
}

/** @throws SelfExplanatoryError when the port is taken. */
export async function startCodecServer(options: CodecServerOptions) {
  const { log, requestLimitMs = REQUEST_LIMIT_MS } = options;
  const context = { ...options, callerOf: callerCheck(options.issuer), bodies: new Set<IncomingMessage>() };
  const limits = { requestTimeout: requestLimitMs, connectionsCheckingInterval: CHECK_EVERY_MS };
  const server = createServer(limits, (request, response) => {
    response.once('close', () => context.bodies.delete(request));
    void answer(request, response, context).catch((error: unknown) => {
      const status = error instanceof Refusal ? error.status : 500;
      log.warn(
        {
          ...{ path: pathOf(request), status, reason: reasonOf(error) },
          ...(error instanceof Refusal && error.who !== undefined ? { who: error.who } : {}),
        },
        'codec request refused',
      );
      // The rest of a body that is not read would be taken for the next request.
      if (!request.complete) response.setHeader('connection', 'close');
      // What does not open is the caller's business, what breaks here is not.
      send(response, status, { message: error instanceof Refusal ? error.message : 'internal error' });
    });
  });
  server.setTimeout(requestLimitMs);
  const port = await listen(server, options.host, options.port, 'NOTIFICATION_CODEC_HTTP_ADDR');
  return {
    port,
    async stop(): Promise<void> {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Without the query, and without a parser that some paths break. The log quotes nothing that strangers send. */
const pathOf = ({ url = '' }: IncomingMessage) => (url.split('?')[0] === '/decode' ? '/decode' : 'other');

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  options: CodecServerOptions & { callerOf: ReturnType<typeof callerCheck>; bodies: Set<IncomingMessage> },
): Promise<void> {
  const { allowedOrigin, bodies, callerOf } = options;
  response.setHeader('cache-control', 'no-store');
  const { origin } = request.headers;
  if (origin !== undefined) {
    if (origin !== allowedOrigin) throw new Refusal(403, 'this origin may not use the codec server');
    response.setHeader('access-control-allow-origin', origin);
    response.setHeader('access-control-allow-credentials', 'true');
    response.setHeader('vary', 'origin');
  }
  if (request.method === 'OPTIONS') {
    response.setHeader('access-control-allow-methods', 'POST');
    response.setHeader('access-control-allow-headers', 'authorization, content-type, x-namespace');
    response.setHeader('access-control-max-age', '600');
    return void response.writeHead(204).end();
  }
  const caller = await callerOf(request.headers.authorization);
  if (!caller) throw new Refusal(401, 'a token is required');

  if (pathOf(request) === 'other') throw new Refusal(404, 'there is /decode');
  if (request.method !== 'POST') throw new Refusal(405, 'POST is expected');
  // Everyone who signs in to the Web UI has a token and can send a body, so the permission is checked before the body is read.
  if (caller.readable.size === 0)
    throw forbidden(caller, 'the token does not allow to read in any namespace');

  if (bodies.size >= MAX_BODIES) throw new Refusal(503, 'busy: ask again in some seconds');
  bodies.add(request);
  const given = request.headers['x-namespace'];
  const asked = typeof given === 'string' ? given : undefined;
  const payloads = await decoded(await payloadsOf(request), caller, asked, options);
  send(response, 200, {
    payloads: payloads.map(({ metadata, data }) => ({
      metadata: Object.fromEntries(
        Object.entries(metadata ?? {}).map(([name, value]) => [name, Buffer.from(value).toString('base64')]),
      ),
      data: Buffer.from(data ?? []).toString('base64'),
    })),
  });
}

/** What is in plain is given back as it is. @param asked the namespace that the request names. */
async function decoded(
  payloads: Payload[],
  caller: Caller,
  asked: string | undefined,
  { codec, namespace, log }: CodecServerOptions,
): Promise<Payload[]> {
  const heads = payloads.map((payload) => payloadHeadOf(payload));
  const namespaces = new Set(heads.flatMap((head) => (head ? [head.owner.namespace || namespace] : [])));
  for (const one of namespaces) {
    if (asked !== undefined && asked !== one) throw forbidden(caller, 'payloads of another namespace');
    if (![one, ALL_NAMESPACES].some((of) => caller.readable.has(of)))
      throw forbidden(caller, 'the token does not allow this namespace');
  }
  const opened: Payload[] = [];
  for (const payload of payloads) {
    if (isSealed(payload)) opened.push(...(await codec.decode([payload]).catch(refuseWithReason)));
    else opened.push(payload);
  }
  const workflowIds = [...new Set(heads.flatMap((head) => head?.owner.workflowId || []))];
  if (namespaces.size > 0) {
    log.info(
      {
        ...{ who: caller.who, namespaces: [...namespaces], workflow_ids: workflowIds.slice(0, MOST_NAMED) },
        ...{ workflows: workflowIds.length, payloads: heads.filter(Boolean).length },
        key_ids: [...new Set(heads.flatMap((head) => head?.keyId ?? []))],
      },
      'payloads decoded',
    );
  }
  return opened;
}

const forbidden = (caller: Caller, message: string): Refusal => new Refusal(403, message, caller.who);

function refuseWithReason(error: unknown): never {
  throw new Refusal(400, reasonOf(error));
}

async function payloadsOf(request: IncomingMessage) {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new Refusal(413, `a request has at most ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  let body: unknown;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new Refusal(400, 'the body is not JSON');
  }
  refuseIfMany(body);
  const parsed = requestSchema.safeParse(body);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    // The names of metadata, which come fourth, are the caller's own words: they stay out of the log.
    throw new Refusal(400, `${path.slice(0, 3).join('.') || 'body'}: ${message}`);
  }
  return parsed.data.payloads.map(({ metadata = {}, data = '' }) => ({
    metadata: Object.fromEntries(
      Object.entries(metadata).map(([name, value]) => [name, Buffer.from(value, 'base64')]),
    ),
    data: Buffer.from(data, 'base64'),
  }));
}

/** The schema copies what it checks, and takes its time for each part. */
function refuseIfMany(body: unknown): void {
  const { payloads } = (body ?? {}) as { payloads?: unknown };
  if (!Array.isArray(payloads)) return;
  if (payloads.length > MAX_PAYLOADS)
    throw new Refusal(413, `a request has at most ${MAX_PAYLOADS} payloads`);
  for (const [index, payload] of payloads.entries()) {
    const { metadata } = (payload ?? {}) as { metadata?: unknown };
    if (Object.keys(metadata ?? {}).length > MAX_METADATA)
      throw new Refusal(413, `payloads.${index}.metadata: at most ${MAX_METADATA} names`);
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

// --- Who may use it, and for what --------------------------------------------------------------------------------------

/** Keys of the issuer that verify signatures; a token with a shared secret or without a signature is no proof. */
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'];
const KEYS_LIMIT_MS = 5_000;
const CLOCK_TOLERANCE_S = 30;
/** A permission for this namespace is one for all of them, as Temporal itself has it. */
const ALL_NAMESPACES = 'temporal-system';
const PERMISSION_TO_READ = /^(.+):(?:read|write|worker|admin)$/;

interface TokenIssuer {
  /** Where its public keys are. */
  jwksUrl: string;
  /** Must be the claim `iss`. */
  issuer: string;
  /** Must be in the claim `aud`. */
  audience: string;
  /** Lists what the caller may do, as `namespace:role`. */
  permissionsClaim: string;
}

interface Caller {
  /** The claim `sub`. */
  who: string;
  /** The namespaces that the caller may read. */
  readable: ReadonlySet<string>;
}

/**
 * @returns finds out who calls, by the header `authorization`; undefined for a caller without proof. It throws a Refusal when the
 * keys of the issuer are out of reach, so that the identity of the caller cannot be checked.
 */
function callerCheck({ jwksUrl, issuer, audience, permissionsClaim }: TokenIssuer) {
  const keys = createRemoteJWKSet(new URL(jwksUrl), { timeoutDuration: KEYS_LIMIT_MS });
  return async (authorization = ''): Promise<Caller | undefined> => {
    const [, token] = /^bearer (.+)$/i.exec(authorization) ?? [];
    if (token === undefined) return undefined;
    let claims: JWTPayload;
    try {
      ({ payload: claims } = await jwtVerify(token, keys, {
        issuer,
        audience,
        algorithms: ALGORITHMS,
        requiredClaims: ['sub', 'exp'],
        clockTolerance: CLOCK_TOLERANCE_S,
      }));
    } catch (error) {
      if (isAboutTheToken(error)) return undefined;
      throw new Refusal(503, 'the keys of the issuer cannot be read');
    }
    return { who: claims.sub!, readable: readableIn(claims[permissionsClaim]) };
  };
}

/** What the library throws for tokens and for keys differs by class only. */
function isAboutTheToken(error: unknown): boolean {
  return (
    error instanceof errors.JOSEError &&
    !(error instanceof errors.JWKSTimeout) &&
    !(error instanceof errors.JWKSInvalid) &&
    error.code !== 'ERR_JOSE_GENERIC'
  );
}

/** @param claim a list of permissions, or one text with spaces between them. */
function readableIn(claim: unknown): Set<string> {
  const permissions: unknown[] = typeof claim === 'string' ? claim.split(' ') : [claim].flat();
  return new Set(
    permissions.flatMap((one) => (typeof one === 'string' && PERMISSION_TO_READ.exec(one)?.[1]) || []),
  );
}

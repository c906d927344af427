/**
 * The codec server: decrypts payloads for the Temporal Web UI and the `temporal` program, which know nothing of the
 * keys (Temporal's "codec server" protocol: `POST /decode` and `/encode` with `{"payloads": [...]}`).
 *
 * Everybody who can read here can read everything, so each request must present the token: as `Authorization: Bearer`,
 * from `temporal --codec-auth`, or as the password of basic authentication, which a browser asks for once when its user
 * opens the server's page and then sends along with the Web UI's requests. Only the Web UI's origin may make those.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { PayloadCodec } from '@temporalio/common';
import type { Logger } from 'pino';
import { z } from 'zod';
import { reasonOf } from '../activities/reason.ts';

/** A page of a history, with room to spare. */
const MAX_BODY_BYTES = 16 * 1024 * 1024;
const REQUEST_LIMIT_MS = 10_000;

export interface CodecServerOptions {
  /** Undefined listens on every interface. */
  host: string | undefined;
  port: number;
  /** As it is now. */
  token: () => string;
  /** Origin of the Web UI, e.g. `https://temporal.example.com`; undefined: no browser may use the server. */
  allowedOrigin: string | undefined;
  codec: PayloadCodec;
  log: Logger;
}

export interface CodecServer {
  port: number;
  stop(): Promise<void>;
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
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** @throws Error when the port is taken. */
export async function startCodecServer(options: CodecServerOptions): Promise<CodecServer> {
  const { log } = options;
  const server = createServer({ requestTimeout: REQUEST_LIMIT_MS }, (request, response) => {
    void answer(request, response, options).catch((error: unknown) => {
      const status = error instanceof Refusal ? error.status : 500;
      log.warn(
        { path: request.url?.slice(0, 100), status, reason: reasonOf(error) },
        'codec request refused',
      );
      if (status === 401)
        response.setHeader('www-authenticate', 'Basic realm="codec server", charset="UTF-8"');
      // What does not open is the caller's business, what breaks here is not.
      send(response, status, { message: error instanceof Refusal ? error.message : 'internal error' });
    });
  });
  server.listen(options.port, options.host);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  log.info({ port }, 'codec server started');
  return {
    port,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { token, allowedOrigin, codec }: CodecServerOptions,
): Promise<void> {
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
  if (!isAuthorized(request.headers.authorization, token())) throw new Refusal(401, 'a token is required');

  const { pathname } = new URL(request.url ?? '/', 'http://codec');
  if (pathname === '/' && request.method === 'GET') {
    return send(response, 200, { message: 'The Web UI can decode now; this page need not stay open.' });
  }
  const work = { '/encode': codec.encode, '/decode': codec.decode }[pathname];
  if (!work) throw new Refusal(404, 'there are /encode and /decode');
  if (request.method !== 'POST') throw new Refusal(405, 'POST is expected');

  const payloads = await payloadsOf(request);
  const worked = await work(payloads).catch((error: unknown) => {
    throw new Refusal(400, reasonOf(error));
  });
  send(response, 200, {
    payloads: worked.map(({ metadata, data }) => ({
      metadata: Object.fromEntries(
        Object.entries(metadata ?? {}).map(([name, value]) => [name, Buffer.from(value).toString('base64')]),
      ),
      data: Buffer.from(data ?? []).toString('base64'),
    })),
  });
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
  const parsed = requestSchema.safeParse(body);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    throw new Refusal(400, `${path.join('.') || 'body'}: ${message}`);
  }
  return parsed.data.payloads.map(({ metadata = {}, data = '' }) => ({
    metadata: Object.fromEntries(
      Object.entries(metadata).map(([name, value]) => [name, Buffer.from(value, 'base64')]),
    ),
    data: Buffer.from(data, 'base64'),
  }));
}

function isAuthorized(header: string | undefined, token: string): boolean {
  const [, scheme = '', credentials = ''] = /^(\S+) (.+)$/.exec(header ?? '') ?? [];
  switch (scheme.toLowerCase()) {
    case 'bearer':
      return isSame(credentials, token);
    case 'basic': {
      const userAndPassword = Buffer.from(credentials, 'base64').toString('utf8');
      return isSame(userAndPassword.slice(userAndPassword.indexOf(':') + 1), token);
    }
    default:
      return false;
  }
}

/** In a time that says nothing about where they differ. */
function isSame(given: string, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** The private probe listener (api/probe-openapi.yaml): two routes and nothing else. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import type { Logger } from 'pino';
import type { Meter } from '@opentelemetry/api';
import { countersOf } from '../activities/counters.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { ProcessContext } from './context.ts';

/** What a request that is under way at the end may still take, ms. */
const LAST_REQUEST_MS = 1_000;

/** Recording functions, one per counter. */
export type ProbeMetrics = ReturnType<typeof createProbeMetrics>;

export function createProbeMetrics(meter: Meter) {
  const { counter } = countersOf(meter);
  return {
    probeRequest: counter<{ path: '/healthz' | '/readyz' | 'other'; status: number }>(
      'notification.internal_http.requests',
      'Requests to the probe listener',
    ),
  };
}

export interface ProbeOptions {
  /** Undefined listens on every interface. */
  host: string | undefined;
  port: number;
  readHeaderTimeoutMs: number;
  readTimeoutMs: number;
  idleTimeoutMs: number;
}

interface Observers {
  log: Logger;
  metrics: ProbeMetrics;
}

/** The port of the probes is taken; the message names the variable that moves it. */
export class ProbePortError extends SelfExplanatoryError {
  override name = 'ProbePortError';
}

export interface Probes {
  url: string;
  /** `/readyz` says ready from now on; before, and after `stop` began, it answers 503. */
  setReady(ready: boolean): void;
  stop(): Promise<void>;
}

/** Starts the probes of a process. @throws ProbePortError when the port is taken. */
export async function openProbes({
  config: { production, values },
  log,
  meter,
  open,
}: Pick<ProcessContext, 'config' | 'log' | 'meter' | 'open'>): Promise<Probes> {
  const { host, port } = values.NOTIFICATION_INTERNAL_HTTP_ADDR;
  const probes = await startProbes(
    {
      host: host || (production ? undefined : '127.0.0.1'),
      port,
      readHeaderTimeoutMs: values.NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT,
      readTimeoutMs: values.NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT,
      idleTimeoutMs: values.NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT,
    },
    { log, metrics: createProbeMetrics(meter) },
  );
  open.add('probes', () => probes.stop());
  return probes;
}

/** @throws ProbePortError when the port is taken. */
export async function startProbes(options: ProbeOptions, observers: Observers): Promise<Probes> {
  const { log } = observers;
  let ready = false;
  const server = createServer(
    {
      headersTimeout: options.readHeaderTimeoutMs,
      requestTimeout: options.readTimeoutMs,
      keepAliveTimeout: options.idleTimeoutMs,
      // How often Node looks for connections past these limits.
      connectionsCheckingInterval: Math.min(options.readHeaderTimeoutMs, 1_000),
    },
    (request, response) => {
      observe(request, response, observers);
      respond(request, response, ready);
    },
  );
  await listen(server, options);
  const { port } = server.address() as AddressInfo;
  const url = urlOf(options.host ?? 'localhost', port);
  log.info({ url }, 'probe listener started');
  return {
    url,
    setReady: (value) => {
      ready = value;
    },
    stop: async () => {
      ready = false;
      if (!server.listening) return;
      const closed = once(server, 'close');
      // Idle connections end with it; a request under way may finish. Node watches no time-outs from here on.
      server.close();
      const cutOff = setTimeout(() => server.closeAllConnections(), LAST_REQUEST_MS);
      await closed.finally(() => clearTimeout(cutOff));
      log.info({ url }, 'probe listener stopped');
    },
  };
}

function urlOf(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function observe(request: IncomingMessage, response: ServerResponse, { log, metrics }: Observers): void {
  const path = pathOf(request);
  const startedAt = performance.now();
  response.once('close', () => {
    const { statusCode: status } = response;
    const duration_ms = Math.round(performance.now() - startedAt);
    // Strangers may come here, too: neither log nor metrics quote what they send.
    const known = isProbe(path) ? path : 'other';
    log.debug({ method: request.method, path: known, status, duration_ms }, 'probe answered');
    metrics.probeRequest({ path: known, status });
  });
}

/** Without the query, which makes no difference. */
const pathOf = ({ url = '' }: IncomingMessage): string => url.split('?')[0]!;

const isProbe = (path: string): path is '/healthz' | '/readyz' => path === '/healthz' || path === '/readyz';

function respond(request: IncomingMessage, response: ServerResponse, ready: boolean): void {
  const { method } = request;
  const path = pathOf(request);
  if (!isProbe(path)) return send(response, 404, { error: 'not_found' });
  if (method !== 'GET' && method !== 'HEAD') {
    response.setHeader('allow', 'GET, HEAD');
    return send(response, 405, { error: 'method_not_allowed' });
  }
  if (path === '/healthz') return send(response, 200, { status: 'ok' });
  return ready ? send(response, 200, { status: 'ready' }) : send(response, 503, { status: 'not_ready' });
}

function send(response: ServerResponse, status: number, body: Record<string, string>): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

async function listen(server: Server, { host, port }: ProbeOptions): Promise<void> {
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new ProbePortError(
      `port ${port} for the probes is taken; set NOTIFICATION_INTERNAL_HTTP_ADDR to move them`,
      {
        cause: error,
      },
    );
  }
}

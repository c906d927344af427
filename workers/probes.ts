/** The private probe listener (api/probe-openapi.yaml): two routes and nothing else. */
import type { Server } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import type { Meter } from '@opentelemetry/api';
import { countersOf } from '../activities/metrics.ts';
import { SelfExplanatoryError } from '../api/errors.ts';
import type { ProcessContext } from './context.ts';

/** What a request that is under way at the end may still take, ms. */
const LAST_REQUEST_MS = 1_000;

const PATHS = ['/healthz', '/readyz'] as const;
type ProbePath = (typeof PATHS)[number] | 'other';

export type Probes = Awaited<ReturnType<typeof openProbes>>;

export const probeCounter = (meter: Meter) =>
  countersOf(meter).counter<{ path: ProbePath; status: number }>(
    'notification.internal_http.requests',
    'Requests to the probe listener',
  );

/** Starts the probes of a process. @throws SelfExplanatoryError when the port is taken. */
export async function openProbes({
  config: { production, values },
  log,
  meter,
  open,
}: Pick<ProcessContext, 'config' | 'log' | 'meter' | 'open'>) {
  const { host: named, port: wanted } = values.NOTIFICATION_INTERNAL_HTTP_ADDR;
  // Undefined listens on every interface.
  const host = named || (production ? undefined : '127.0.0.1');
  const headersTimeout = values.NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT;
  const countRequest = probeCounter(meter);
  let ready = false;
  const server = createServer(
    {
      headersTimeout,
      requestTimeout: values.NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT,
      keepAliveTimeout: values.NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT,
      // How often Node looks for connections past these limits.
      connectionsCheckingInterval: Math.min(headersTimeout, 1_000),
    },
    ({ method, url = '' }, response) => {
      const startedAt = performance.now();
      // Without the query. Strangers may come here, too: neither log nor metrics quote what they send.
      const path = PATHS.find((one) => one === url.split('?')[0]) ?? 'other';
      response.once('close', () => {
        const { statusCode: status } = response;
        const duration_ms = Math.round(performance.now() - startedAt);
        log.debug({ method, path, status, duration_ms }, 'probe answered');
        countRequest({ path, status });
      });
      const [status, body] = answerTo(method, path, ready);
      if (status === 405) response.setHeader('allow', 'GET, HEAD');
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    },
  );
  const port = await listen(server, host, wanted, 'NOTIFICATION_INTERNAL_HTTP_ADDR');
  const url = urlOf(host ?? 'localhost', port);
  log.info({ url }, 'probe listener started');
  const probes = {
    url,
    /** `/readyz` says ready from now on; before, and after `stop` began, it answers 503. */
    setReady: (value: boolean) => void (ready = value),
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
  open.add('probes', () => probes.stop());
  return probes;
}

function urlOf(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function answerTo(method: string | undefined, path: ProbePath, isReady: boolean): [number, object] {
  if (path === 'other') return [404, { error: 'not_found' }];
  if (method !== 'GET' && method !== 'HEAD') return [405, { error: 'method_not_allowed' }];
  if (path === '/healthz') return [200, { status: 'ok' }];
  return isReady ? [200, { status: 'ready' }] : [503, { status: 'not_ready' }];
}

/** @param variable of the address. @returns the port. @throws SelfExplanatoryError when it is taken. */
export async function listen(
  server: Server,
  host: string | undefined,
  port: number,
  variable: string,
): Promise<number> {
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new SelfExplanatoryError(`port ${port} is taken; set ${variable} to another one`, { cause: error });
  }
  return (server.address() as AddressInfo).port;
}

/**
 * A stand-in for the push provider behind a notification router: takes every push, and keeps it to be looked at. As
 * with APNs, `POST /3/device/<device token>` is answered with 200, or with a status and `{"reason"}`.
 *
 * ```
 * GET  /_pushes   every push so far
 * POST /_fail     {"failure": {"status", "reason"}, "token"?, "times"?}
 * POST /_heal     removes all failures
 * ```
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { PushProvider } from '../../../activities/subscription/router/ports.ts';
import { createFailureScripts } from '../failure-scripts.ts';
import { assertPortFree, LOOPBACK } from '../../servers/ports.ts';
import { sendJson } from './router-desk.ts';

/** Encrypted for the owner of the token, base64url each. */
export interface PushData {
  nonce?: string;
  /** The code that a token is verified with. */
  verification?: string;
  /** What messages arrived, the newest ones of at most 6 queues. */
  message?: string;
  /** The device is to look for messages itself. */
  checkMessages?: true;
}

export interface RecordedDevicePush {
  provider: PushProvider;
  /** Of the device, hex. */
  token: string;
  kind: 'verification' | 'message' | 'check';
  /** A background push shows nothing. */
  isBackground: boolean;
  data: PushData;
  /** Milliseconds since the epoch. */
  at: number;
  /** What the provider answered. */
  status: number;
}

/** A refusal: 400 `BadDeviceToken`, `TopicDisallowed`; 410 `Unregistered`, `ExpiredToken`; 503 … */
export interface PushFailure {
  status: number;
  reason: string;
}

export interface PushSinkStandIn {
  url: string;
  /** Every push so far, oldest first, refused ones included. */
  pushes: readonly RecordedDevicePush[];
  /** @param script.token of the device; default: every one. */
  fail(script: { failure: PushFailure; token?: string; times?: number }): void;
  heal(): void;
  stop(): Promise<void>;
}

const PATH = /^\/3\/device\/([0-9a-f]+)$/;

/** Starts the stand-in on 127.0.0.1. @throws Error when the port is taken. */
export async function startPushSink({ port = 0 }: { port?: number } = {}): Promise<PushSinkStandIn> {
  if (port !== 0) await assertPortFree(port, 'stand-in push provider');
  const pushes: RecordedDevicePush[] = [];
  const failures = createFailureScripts<PushFailure>();

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const token = request.method === 'POST' ? PATH.exec(request.url ?? '')?.[1] : undefined;
    if (token === undefined) {
      await control(request, response);
      return;
    }
    const { notificationData: data } = (await json(request)) as { notificationData: PushData };
    const kind = data.verification ? 'verification' : data.message ? 'message' : 'check';
    const isBackground = request.headers['apns-push-type'] === 'background';
    const provider = request.headers['x-provider'] as PushProvider;
    const failure = failures.next(token);
    const status = failure?.status ?? 200;
    pushes.push({ provider, token, kind, isBackground, data, at: Date.now(), status });
    sendJson(response, status, failure ? { reason: failure.reason } : {});
  }

  async function control(request: IncomingMessage, response: ServerResponse): Promise<void> {
    switch (`${request.method} ${request.url}`) {
      case 'GET /_pushes':
        sendJson(response, 200, { pushes });
        return;
      case 'POST /_fail': {
        const { token, ...script } = (await json(request)) as Parameters<PushSinkStandIn['fail']>[0];
        failures.add(script, token);
        break;
      }
      case 'POST /_heal':
        failures.heal();
        break;
      default:
        sendJson(response, 404, { reason: 'BadPath' });
        return;
    }
    sendJson(response, 200, { ok: true });
  }

  const server = createServer((request, response) => {
    receive(request, response).catch(() => response.destroy());
  });
  server.listen(port, LOOPBACK);
  await once(server, 'listening');

  return {
    url: `http://${LOOPBACK}:${(server.address() as AddressInfo).port}`,
    pushes,
    fail: ({ token, ...script }) => failures.add(script, token),
    heal: () => failures.heal(),
    async stop() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

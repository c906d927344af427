/**
 * An outsider stands where FCM or the collector of telemetry is expected, with a foreign, expired or other certificate, or with
 * none. No push and no export gets there, and no reason quotes a credential.
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener } from 'node:http';
import { createServer as createPlainServer } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createFcmSender } from '../../activities/mobile-push/fcm.ts';
import { loadConfig } from '../../config/load.ts';
import type { LoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { createLogger } from '../../workers/logger.ts';
import { createProbeMetrics } from '../../workers/probes.ts';
import { startTelemetry } from '../../workers/telemetry.ts';
import { eventually } from '../eventually.ts';
import type { Certificates } from '../identities.ts';
import { createCertificates } from '../identities.ts';
import { messageOf } from '../mobile-push/fcm-sender.ts';

const KEY = 'export-7d41c0e95b28af63';
const DEVICE_TOKEN = 'phone-51be02a7:APA91b';
const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-scanner-'));
const stops: (() => unknown)[] = [];
let server: Certificates;
let client: Certificates;

beforeAll(async () => {
  [server, client] = [await createCertificates(), await createCertificates()];
});
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** @param shown undefined: it speaks in plain text. @param known authorities of clients, when it asks for a certificate. */
async function startServer(shown?: LoopbackCertificate, known?: string[]) {
  const calls: IncomingMessage[] = [];
  const take: RequestListener = (call, response) => {
    calls.push(call);
    call.resume();
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"name":"projects/p/messages/1"}');
  };
  const started = shown
    ? createServer(
        {
          ...{ key: shown.keyPem, cert: shown.certPem },
          ...(known === undefined ? {} : { requestCert: true, rejectUnauthorized: true, ca: known }),
        },
        take,
      )
    : createPlainServer(take);
  started.listen(0, '127.0.0.1');
  await once(started, 'listening');
  stops.push(() => {
    started.closeAllConnections();
    started.close();
  });
  return { url: `https://127.0.0.1:${(started.address() as AddressInfo).port}`, calls };
}

let written = 0;
function file(content: string): string {
  const named = path.join(folder, `${(written += 1)}.pem`);
  writeFileSync(named, content, { mode: 0o600 });
  return named;
}

/** What is left to say when it did not arrive; undefined when it was taken. */
type Call = (url: string, trusted: string, own?: LoopbackCertificate) => Promise<string | undefined>;

const push: Call = async (endpoint, caPem) => {
  const sender = createFcmSender({ target: { endpoint, caPem, projectId: 'galaxy' }, timeoutMs: 60_000 });
  stops.push(() => sender.close());
  const outcome = await sender.send(messageOf(), DEVICE_TOKEN);
  // A certificate says nothing about the phone: its token stays, and the push is tried again.
  if (outcome.outcome === 'sent') return undefined;
  expect(outcome.outcome).toBe('retry');
  return 'reason' in outcome ? outcome.reason : '';
};

const exportMetrics: Call = async (url, trusted, own) => {
  const lines: string[] = [];
  const readByExporter = {
    OTEL_EXPORTER_OTLP_CERTIFICATE: file(trusted),
    ...(own && {
      OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: file(own.certPem),
      OTEL_EXPORTER_OTLP_CLIENT_KEY: file(own.keyPem),
    }),
  };
  Object.assign(process.env, readByExporter);
  try {
    const telemetry = startTelemetry(
      loadConfig({
        OTEL_EXPORTER_OTLP_ENDPOINT: url,
        OTEL_EXPORTER_OTLP_HEADERS: `authorization=${KEY}`,
        OTEL_METRIC_EXPORT_INTERVAL: '60000',
      }),
      createLogger('debug', { write: (line: string) => void lines.push(line) }),
    );
    createProbeMetrics(telemetry.meter).probeRequest({ path: '/healthz', status: 200 });
    await telemetry.shutdown();
  } finally {
    for (const name of Object.keys(readByExporter)) delete process.env[name];
  }
  return lines.length === 0 ? undefined : lines.join('');
};

/** The last export has little time: on a busy machine not each one arrives. */
const taken = (call: () => ReturnType<Call>) =>
  eventually('one that is taken', async () => (await call()) === undefined);

describe.each([
  ['a push', push],
  ['an export', exportMetrics],
])('%s', (_, call) => {
  test('security-10 goes to the right server', async () => {
    const { url, calls } = await startServer(server.own);
    await taken(() => call(url, server.own.certPem));
    expect(calls).not.toEqual([]);
  });

  test.each(['foreign', 'expired', 'ofAnotherName', 'plain'] as const)(
    'security-10 security-18 does not go to a server whose certificate is %s, and no reason quotes a credential',
    async (kind) => {
      const shown = kind === 'plain' ? undefined : server[kind];
      const { url, calls } = await startServer(shown);
      const trusted = kind === 'expired' || kind === 'ofAnotherName' ? server[kind] : server.own;
      const reason = await call(url, trusted.certPem);
      // The end of the process may come before the reason.
      expect(reason).toMatch(
        /certificate|altname|wrong version|packet length|EPROTO|network|not exported in time/i,
      );
      for (const secret of [KEY, DEVICE_TOKEN]) expect(reason).not.toContain(secret);
      expect(calls).toEqual([]);
    },
  );
});

test('security-10 an export shows its certificate, and is not taken with a foreign, an expired or none', async () => {
  const { url, calls } = await startServer(server.own, [client.own.certPem, client.expired.certPem]);
  for (const own of [client.foreign, client.expired, undefined]) {
    const said = await exportMetrics(url, server.own.certPem, own);
    // A server that hangs up is tried again: the end of the process may come before the reason.
    expect(said).toMatch(/OpenTelemetry has a problem|were not exported in time/);
    expect(said).not.toContain(KEY);
  }
  expect(calls).toEqual([]);
  await taken(() => exportMetrics(url, server.own.certPem, client.own));
  expect(new Set(calls.map(({ headers }) => headers.authorization))).toEqual(new Set([KEY]));
});

/**
 * The codec server as a separate process, `node workers/main.ts codec-server`: no request can stop a worker. It connects
 * to PostgreSQL only if it also seals, because seals are counted there.
 */
import type { Logger } from 'pino';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/service.ts';
import type { CodecServerOptions } from './codec-server.ts';
import { startCodecServer } from './codec-server.ts';
import type { ProcessContext } from './context.ts';
import { OpenParts, sayWhatIsOpen } from './context.ts';
import { openPayloadCodec } from './key-boxes.ts';
import { createKeyUse } from './key-use.ts';
import { connectPostgres } from './postgres.ts';
import { openProbes } from './probes.ts';
import { watchFiles } from './process-report.ts';
import { startTelemetry } from './telemetry.ts';

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
    const context = { config, log, meter, open, renewable: [], keyUse: createKeyUse(meter, log) };
    const probes = await openProbes(context);
    const server = await startCodecServer(optionsOf(context));
    open.add('codec server', () => server.stop());
    const { NOTIFICATION_CODEC_ENCODE: encodes, NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn } = config.values;
    // What the process seals is counted there.
    const db = encodes ? await connectPostgres({ ...context, endpoints: { postgresDsn: dsn! } }) : undefined;
    watchFiles(context, db);
    probes.setReady(true);
    log.info({ port: server.port, probes: probes.url }, 'codec server ready');
    return { port: server.port, probesUrl: probes.url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The token of the options is replaced when its file changes. */
function optionsOf(context: Omit<ProcessContext, 'endpoints' | 'draining'>): CodecServerOptions {
  const { config, log, renewable } = context;
  const { values, production } = config;
  const { NOTIFICATION_CODEC_JWKS_URL: jwksUrl, NOTIFICATION_TEMPORAL_UI_URL: ui } = values;
  const { host, port } = values.NOTIFICATION_CODEC_HTTP_ADDR!;
  let token = values.NOTIFICATION_CODEC_TOKEN;
  if (token !== undefined && production) {
    log.warn(
      'the codec server takes one shared token and does not know who reads: set NOTIFICATION_CODEC_JWKS_URL',
    );
  }
  renewable.push({
    what: 'codec server',
    variables: ['NOTIFICATION_CODEC_TOKEN'],
    renew: (next) => void (token = next.values.NOTIFICATION_CODEC_TOKEN ?? token),
  });
  return {
    host: host || (production ? undefined : '127.0.0.1'),
    port,
    sharedToken: () => token,
    issuer:
      jwksUrl === undefined
        ? undefined
        : {
            jwksUrl,
            // Both are there when the URL is.
            issuer: values.NOTIFICATION_CODEC_ISSUER!,
            audience: values.NOTIFICATION_CODEC_AUDIENCE!,
            permissionsClaim: values.NOTIFICATION_CODEC_PERMISSIONS_CLAIM,
          },
    namespace: temporalConnection(config, undefined).namespace,
    encodes: values.NOTIFICATION_CODEC_ENCODE,
    allowedOrigin: ui === undefined ? undefined : new URL(ui).origin,
    codec: openPayloadCodec(context, () => 'refuse'),
    log,
  };
}

/**
 * The codec server as a separate process, `node workers/main.ts codec-server`: no request can stop a worker. It connects
 * to PostgreSQL only if it also seals, because seals are counted there.
 */
import type { Logger } from 'pino';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/service.ts';
import { startCodecServer } from './codec-server.ts';
import type { ProcessContext } from './context.ts';
import { OpenParts, sayWhatIsOpen } from './context.ts';
import { openPayloadCodec } from './key-boxes.ts';
import { createKeyUse } from './key-use.ts';
import { connectPostgres } from './postgres.ts';
import { openProbes } from './probes.ts';
import { watchFiles } from './process-report.ts';
import { startTelemetry } from './telemetry.ts';

type CodecContext = Omit<ProcessContext, 'endpoints' | 'draining'>;

interface CodecProcess {
  port: number;
  probesUrl: string;
  stop(): Promise<void>;
}

/**
 * @param config of `loadCodecConfig`.
 * @throws DependencyError, or an error of a listener; everything that was opened is closed.
 */
export async function startCodecProcess(config: Config, log: Logger): Promise<CodecProcess> {
  const open = new OpenParts(log);
  const stop = () => open.closeAll(config.values.NOTIFICATION_SHUTDOWN_TIMEOUT);
  try {
    const telemetry = startTelemetry(config, log);
    const { meter } = telemetry;
    open.add('telemetry', () => telemetry.shutdown());
    sayWhatIsOpen(config, log);
    const context = { config, log, meter, open, renewable: [], keyUse: createKeyUse(meter, log) };
    const probes = await openProbes(context);
    const port = await openCodecServer(context);
    const { NOTIFICATION_CODEC_ENCODE: encodes, NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn } = config.values;
    // What the process seals is counted there.
    const db = encodes ? await connectPostgres({ ...context, endpoints: { postgresDsn: dsn! } }) : undefined;
    watchFiles(context, db);
    probes.setReady(true);
    log.info({ port, probes: probes.url }, 'codec server ready');
    return { port, probesUrl: probes.url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function openCodecServer(context: CodecContext): Promise<number> {
  const { config, log, open, renewable } = context;
  const { NOTIFICATION_CODEC_JWKS_URL: jwksUrl, NOTIFICATION_TEMPORAL_UI_URL: ui } = config.values;
  const { host, port } = config.values.NOTIFICATION_CODEC_HTTP_ADDR!;
  let token = config.values.NOTIFICATION_CODEC_TOKEN;
  if (token !== undefined && config.production) {
    log.warn(
      'the codec server takes one shared token and does not know who reads: set NOTIFICATION_CODEC_JWKS_URL',
    );
  }
  renewable.push({
    what: 'codec server',
    variables: ['NOTIFICATION_CODEC_TOKEN'],
    renew({ values }) {
      token = values.NOTIFICATION_CODEC_TOKEN ?? token;
    },
  });
  const server = await startCodecServer({
    host: host || (config.production ? undefined : '127.0.0.1'),
    port,
    sharedToken: () => token,
    issuer:
      jwksUrl === undefined
        ? undefined
        : {
            jwksUrl,
            // Both are there when the URL is.
            issuer: config.values.NOTIFICATION_CODEC_ISSUER!,
            audience: config.values.NOTIFICATION_CODEC_AUDIENCE!,
            permissionsClaim: config.values.NOTIFICATION_CODEC_PERMISSIONS_CLAIM,
          },
    namespace: temporalConnection(config, undefined).namespace,
    encodes: config.values.NOTIFICATION_CODEC_ENCODE,
    allowedOrigin: ui === undefined ? undefined : new URL(ui).origin,
    codec: openPayloadCodec(context, () => 'refuse'),
    log,
  });
  open.add('codec server', () => server.stop());
  return server.port;
}

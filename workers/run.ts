/** `npm start`: what is configured is used; what is not configured is started, outside production. Also `codec-server`. */
import { reasonOf } from '../activities/reason.ts';
import { SelfExplanatoryError, explain } from '../api/errors.ts';
import { onInterrupt } from '../api/interrupts.ts';
import type { Stack } from '../dev/servers/stack.ts';
import type { Config } from '../config/load.ts';
import { loadCodecConfig, loadConfig } from '../config/load.ts';
import { startCodecProcess } from './codec-server.ts';
import { createLogger, logDestination } from './logger.ts';
import type { Service } from './service.ts';

async function main(): Promise<void> {
  const [program] = process.argv.slice(2);
  if (program !== undefined && program !== 'codec-server')
    throw new SelfExplanatoryError('the one argument that there may be is codec-server');
  const config = program ? loadCodecConfig() : loadConfig();
  const destination = await logDestination(process.stdout, config.production);
  const log = createLogger(config.values.NOTIFICATION_LOG_LEVEL, destination);
  // An uncaught error ends the process, as it should; the log, which alarms read, must say so too.
  process.on('uncaughtExceptionMonitor', (error, origin) =>
    log.fatal({ reason: reasonOf(error), origin }, 'the process ends because of an uncaught error'),
  );
  // Until everything runs there is nothing to finish: the embedded servers end with the process.
  const stopEndingNow = onInterrupt(() => process.exit(130));

  if (program) {
    const codecServer = await startCodecProcess(config, log);
    stopEndingNow();
    await nextSignal();
    return codecServer.stop();
  }

  // The codec server does without Temporal's native library and the embedded servers.
  const [{ provideEndpoints }, { startService }] = await Promise.all([
    import('./embedded.ts'),
    import('./service.ts'),
  ]);
  const { endpoints, stack, uiUrl } = await provideEndpoints(config, report);
  try {
    const service = await startService({ config, endpoints, log });
    stopEndingNow();
    const stopRequested = nextSignal();
    if (stack) welcome(config, service, stack, uiUrl);
    const outcome = await Promise.race([stopRequested, service.done]);
    if (outcome) report(`${outcome} received, stopping (again to stop immediately)`);
    await service.stop();
  } finally {
    await stack?.stop();
  }
}

/** Progress and hints for a person go to standard error; standard output is the log. */
function report(line: string): void {
  process.stderr.write(`${line}\n`);
}

function welcome({ catalog }: Config, service: Service, stack: Stack, uiUrl: string | undefined): void {
  const types = [...catalog.types.values()];
  const { type } =
    types.find(({ audiences, isRetired }) => audiences.includes('user') && !isRetired) ?? types[0]!;
  const lines = [
    '',
    'galaxy-notify is ready.',
    ...(uiUrl ? [`  Temporal Web UI  ${uiUrl}`] : []),
    `  Probes           ${service.probesUrl}/readyz`,
    ...(stack.redisAddr ? [`  Redis            ${stack.redisAddr}`] : []),
    ...(stack.postgresDsn ? [`  PostgreSQL       ${stack.postgresDsn}`] : []),
    '',
    'Publish an intent, in another terminal:',
    `  bin/gn intents publish ${type} --sample --wait`,
    '',
  ];
  report(lines.join('\n'));
}

/** Resolves with the first SIGINT or SIGTERM. A second one ends the process without waiting. */
const nextSignal = () => new Promise<string>((resolve) => void onInterrupt(resolve));

try {
  await main();
} catch (error) {
  report(explain(error));
  process.exitCode = 1;
}
// Everything is closed. Only timers without a way to stop them would still keep the process: an exporter whose collector is
// away tries again for several seconds.
process.exit();

/** `galaxy-notify`: the operator's command line, and the composition root of the files cli-*.ts. */
import { Command, CommanderError } from 'commander';
import packageJson from '../package.json' with { type: 'json' };
import { ConfigError } from '../workers/config.ts';
import { addBridgeCommands } from './cli-bridge.ts';
import { addCallbackCommands } from './cli-callbacks.ts';
import { addChannelCommands } from './cli-channels.ts';
import { addDeadLetterCommands } from './cli-dead-letters.ts';
import { addDoctorCommand } from './cli-doctor.ts';
import type { ExitCode } from './cli-exit-codes.ts';
import { EXIT, EXIT_CODES_HELP, UsageError, exitCodeOf } from './cli-exit-codes.ts';
import { addIntentCommands } from './cli-intents.ts';
import { addMalformedCommands } from './cli-malformed.ts';
import { addMobileCommands } from './cli-mobile.ts';
import { addNotificationCommands } from './cli-notifications.ts';
import { report, textOf } from './cli-output.ts';
import { addReplayCommand } from './cli-replay.ts';
import { NotConfiguredError } from './cli-session.ts';
import { addSubscriptionCommands } from './cli-subscriptions.ts';
import { addSymbolCommands } from './cli-symbols.ts';
import { addTokenCommands } from './cli-tokens.ts';
import { NotFoundError, NothingToDoError, OperationFailedError, reasonOf } from './operator-errors.ts';

const OVERVIEW = `
Servers are found by the same environment variables as the service's (.env.example); what is not set is taken from a
running npm start. In a checkout: npx galaxy-notify, or npm run cli -- <command>.

Start with:
  galaxy-notify doctor                                   is everything all right?
  galaxy-notify notifications list --status dead_letter  what needs attention?
  galaxy-notify notifications show <notification id>     what became of it?

${EXIT_CODES_HELP}`;

/** Every command with its help. */
export function programOf(): Command {
  const program = new Command('galaxy-notify')
    .description(
      'Look into and steer galaxy-notify: notifications, dead letters, channels, the stream reader, mobile pushes, symbols, account callbacks, subscriptions and tokens.',
    )
    .version(packageJson.version)
    .option('--json', 'print the result as JSON on standard output, and nothing else there')
    .option('--debug', 'print the stack trace of an error')
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError('(--help shows what is possible)')
    .addHelpText('after', OVERVIEW)
    .exitOverride();
  addDoctorCommand(program);
  addNotificationCommands(program);
  addDeadLetterCommands(program);
  addReplayCommand(program);
  addMalformedCommands(program);
  addChannelCommands(program);
  addBridgeCommands(program);
  addIntentCommands(program);
  addMobileCommands(program);
  addSymbolCommands(program);
  addCallbackCommands(program);
  addSubscriptionCommands(program);
  addTokenCommands(program);
  return program;
}

/** Errors whose message says all there is to say, one line for each thing that is wrong. */
const SELF_EXPLANATORY = [
  ConfigError,
  NotConfiguredError,
  NotFoundError,
  NothingToDoError,
  OperationFailedError,
  UsageError,
];

/** For whoever is woken by it: what is wrong, and the stack only on request. */
function explain(error: unknown): string {
  if (process.argv.includes('--debug') && error instanceof Error) return error.stack ?? error.message;
  return SELF_EXPLANATORY.some((kind) => error instanceof kind)
    ? (error as Error).message
    : `${textOf(reasonOf(error))} (--debug shows where)`;
}

/** Carries out what the command line asks for, and sets the exit code. */
export async function main(): Promise<void> {
  // `galaxy-notify … | head` closes the pipe early, which is no error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    process.exit(error.code === 'EPIPE' ? EXIT.done : EXIT.failed);
  });
  const code = await run();
  if (code !== undefined) process.exitCode = code;
}

async function run(): Promise<ExitCode | undefined> {
  try {
    await programOf().parseAsync();
    return undefined;
  } catch (error) {
    // Commander has said what is wrong, or shown the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    report(`error: ${explain(error)}`);
    return exitCodeOf(error);
  }
}

/** The command line as one tree of commands. */
import type { OutputConfiguration } from 'commander';
import { Command } from 'commander';
import packageJson from '../package.json' with { type: 'json' };
import { addCallbackCommands } from './account-callback/callbacks.ts';
import { addActionCommands } from './actions.ts';
import { EXIT_CODES_HELP } from './command.ts';
import { addCompletionCommand } from './completion.ts';
import { addDoctorCommand } from './doctor.ts';
import { addBridgeCommands } from './intent/bridge.ts';
import { addCatalogCommands } from './intent/catalog.ts';
import { addChannelCommands, addProducerCommands } from './intent/channels.ts';
import { addDeadLetterCommands } from './intent/dead-letters.ts';
import { addIntentCommands } from './intent/intents.ts';
import { addKeyCommands } from './keys.ts';
import { addLooks } from './looks.ts';
import { addMalformedCommands } from './intent/malformed.ts';
import { addNotificationCommands } from './intent/notifications.ts';
import { addOperationCommands } from './operations.ts';
import { addOutboxCommands } from './intent/outbox.ts';
import { addReplayCommand } from './intent/replay.ts';
import { addMobileCommands } from './mobile-push/jobs.ts';
import { addRecoverCommand } from './recover.ts';
import { addSetupCommand } from './setup.ts';
import { addSubscriptionCommands } from './subscription/subscriptions.ts';
import { addTokenCommands } from './subscription/tokens.ts';
import { addSymbolCommands } from './symbol-config/symbols.ts';
import { addUserCommands } from './users.ts';
import { addTopCommand } from './top.ts';
import { addViewsCommand } from './views.ts';
import { addWhyCommand } from './why.ts';

const OVERVIEW = `
Servers are found by the environment variables of the service (.env.example); what is not set is taken from a running
npm start. In a checkout: npx --no-install galaxy-notify, or npm run cli -- <command>.

Start with:
  galaxy-notify setup                                    once for each Temporal namespace
  galaxy-notify doctor                                   is everything all right?
  galaxy-notify top                                      what comes in, goes out, waits and died?
  galaxy-notify notifications list --status dead_letter  what needs attention?
  galaxy-notify why <user>                               what did somebody get, and why not?
  galaxy-notify notifications show <notification id>     what became of it?

${EXIT_CODES_HELP}`;

/** @param output where help and usage errors go; default: the streams of the process. */
export function programOf(output: OutputConfiguration = {}): Command {
  const program = new Command('galaxy-notify')
    .configureOutput(output)
    .description(
      'Look into and steer galaxy-notify: notifications, dead letters, channels, the stream reader, outboxes of producers, mobile pushes, symbols, account callbacks, subscriptions and tokens.',
    )
    .version(packageJson.version)
    .option('--json', 'print the result as JSON on standard output, and nothing else there')
    .option('--debug', 'print the stack trace of an error')
    .configureHelp({
      showGlobalOptions: true,
      optionTerm: ({ flags, mandatory }) => (mandatory ? `${flags} (required)` : flags),
    })
    .showHelpAfterError('(--help shows what is possible)')
    .addHelpText('after', OVERVIEW)
    .exitOverride();
  addSetupCommand(program);
  addDoctorCommand(program);
  addTopCommand(program);
  addViewsCommand(program);
  addWhyCommand(program);
  addNotificationCommands(program);
  addDeadLetterCommands(program);
  addReplayCommand(program);
  addOperationCommands(program);
  addMalformedCommands(program);
  addChannelCommands(program);
  addProducerCommands(program);
  addBridgeCommands(program);
  addIntentCommands(program);
  addCatalogCommands(program);
  addOutboxCommands(program);
  addMobileCommands(program);
  addSymbolCommands(program);
  addCallbackCommands(program);
  addSubscriptionCommands(program);
  addTokenCommands(program);
  addUserCommands(program);
  addKeyCommands(program);
  addActionCommands(program);
  addRecoverCommand(program);
  addCompletionCommand(program);
  addLooks(program);
  return program;
}

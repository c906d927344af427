/** The command line as one tree of commands. */
import type { OutputConfiguration } from 'commander';
import { Command } from 'commander';
import packageJson from '../package.json' with { type: 'json' };

/** The module of a command. */
interface Module {
  /** Gives the command its description, options and subcommands. @param whole loads all commands. */
  addTo(command: Command, whole: typeof wholeProgram): void;
}

/** The commands in the order of the help. The module of a command is imported when that command is used. */
const COMMANDS: Record<string, [summary: string, load: () => Promise<Module>]> = {
  setup: [
    'Create what is missing: namespace, search attributes, schedules, database schema.',
    () => import('./setup.ts'),
  ],
  doctor: [
    'Check the configuration, Redis, PostgreSQL, Temporal with its schedules and workers, the servers that the roles call, and what waits.',
    () => import('./doctor.ts'),
  ],
  top: ['What comes in, goes out, waits and died', () => import('./top.ts')],
  views: ["Links to lists in Temporal's Web UI, and to save them there", () => import('./views.ts')],
  why: ['What a user got, and why not', () => import('./why.ts')],
  notifications: [
    'Accepted notifications and their routes: find, look into, cancel',
    () => import('./intent/notifications.ts'),
  ],
  'dead-letters': [
    'Routes that spent their budget: what failed, and why',
    () => import('./intent/dead-letters.ts'),
  ],
  replay: ['Try dead-lettered routes again, one or many', () => import('./intent/dead-letters.ts')],
  operations: [
    'Operations on many items, such as a replay or a cancellation: find, follow, pause, abort',
    () => import('./operations.ts'),
  ],
  malformed: [
    'Stream entries that could not become a notification',
    () => import('./intent/notifications.ts'),
  ],
  channels: ['Push and e-mail: whether they publish', () => import('./intent/holds.ts')],
  producers: ['Producers of intents: whether what they publish goes out', () => import('./intent/holds.ts')],
  bridge: ['The reader of the intent stream: status, pause, resume', () => import('./intent/holds.ts')],
  intents: [
    'Check and publish intents by hand, see examples of them, and which ones wait',
    () => import('./intent/intents.ts'),
  ],
  catalog: [
    'Check a file of notification types, and write what consumers and producers need of it',
    () => import('./intent/catalog.ts'),
  ],
  outbox: [
    "Intents in a producer's database, and the relay that publishes them",
    () => import('./intent/outbox.ts'),
  ],
  mobile: ['Push jobs to phones: send, find, look into, replay', () => import('./mobile-push/jobs.ts')],
  symbols: [
    'Symbols: which are enabled, and which target has been told so',
    () => import('./symbol-config/symbols.ts'),
  ],
  callbacks: [
    'Callbacks about account values: their progress, failures, trackings and entries',
    () => import('./account-callback/callbacks.ts'),
  ],
  subscriptions: [
    'Notification subscriptions: connections of the agent, and whether they are notified',
    () => import('./subscription/subscriptions.ts'),
  ],
  tokens: [
    "The agent's notification token: the device that pushes go to",
    () => import('./subscription/tokens.ts'),
  ],
  users: ['What is kept of a user', () => import('./users.ts')],
  keys: [
    'Keys of encryption: what is still sealed with each, and how an old one gets out of use',
    () => import('./keys.ts'),
  ],
  actions: ['What operators asked for', () => import('./operations.ts')],
  mcp: ["The operator's functions for an assistant (Model Context Protocol)", () => import('./mcp.ts')],
  recover: ['Repair what a store lost that was put back to an earlier state', () => import('./recover.ts')],
  completion: [
    'Print what a shell needs to complete commands, options and their choices.',
    () => import('./completion.ts'),
  ],
};

const OVERVIEW = `
Servers are found by the environment variables of the service (.env.example); what is not set is taken from a running
npm start. In a clone: bin/gn.

Start with:
  galaxy-notify setup                                    once for each Temporal namespace
  galaxy-notify doctor                                   is everything all right?
  galaxy-notify top                                      what comes in, goes out, waits and died?
  galaxy-notify notifications list --status dead_letter  what needs attention?
  galaxy-notify why <user>                               what did a user get, and why not?
  galaxy-notify notifications show <notification id>     what became of it?

Exit codes:
  0    done
  1    failed: a dependency does not answer, or the operation did not succeed
  2    wrong usage
  3    not found, nothing matched, or nothing left to do
  130  stopped with Ctrl-C`;

/**
 * The program with the names of its commands. A command gets its options and subcommands before it is parsed.
 *
 * @param output where help and usage errors go; default: the streams of the process.
 */
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
      optionTerm: ({ flags, mandatory }) => (mandatory ? `${flags} (required)` : flags),
    })
    .showHelpAfterError('(--help shows what is possible)')
    .addHelpText('after', OVERVIEW)
    .exitOverride()
    .hook('preSubcommand', (_, command) => define(command));
  for (const [name, [summary]] of Object.entries(COMMANDS)) program.command(name).description(summary);
  return program;
}

/** The program with everything that its commands have. */
export async function wholeProgram(output?: OutputConfiguration): Promise<Command> {
  const program = programOf(output);
  await Promise.all(program.commands.map(define));
  return program;
}

const defined = new WeakSet<Command>();

/** Completes a command of the table, once. */
async function define(command: Command): Promise<void> {
  const entry = COMMANDS[command.name()];
  if (entry === undefined || defined.has(command)) return;
  defined.add(command);
  const [summary, load] = entry;
  const { addTo } = await load();
  addTo(command.summary(summary), wholeProgram);
}

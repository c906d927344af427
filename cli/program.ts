/** `galaxy-notify`: the operator's command line, one tree of commands, from its arguments to its exit code. */
import type { Option, OutputConfiguration } from 'commander';
import { Argument, Command, CommanderError } from 'commander';
import packageJson from '../package.json' with { type: 'json' };
import { EXIT, exitCodeOf, explain } from './command.ts';
import { commandsBelow, defineLocal, pathOf } from './definition.ts';
import type { Invocation, Shell } from './invocation.ts';
import { invoke } from './invocation.ts';
import { printableLines, report } from './output.ts';
import { addTo as addCallbacks } from './account-callback/callbacks.ts';
import { addTo as addDoctor } from './doctor.ts';
import { addTo as addCatalog } from './intent/catalog.ts';
import { addDeadLetters, addReplay } from './intent/dead-letters.ts';
import { addBridge, addHeld } from './intent/holds.ts';
import { addTo as addIntents } from './intent/intents.ts';
import { addMalformed, addNotifications } from './intent/notifications.ts';
import { addTo as addOutbox } from './intent/outbox.ts';
import { addKeys, addRecover } from './maintenance.ts';
import { addTo as addMcp } from './mcp.ts';
import { addTo as addJobs } from './mobile-push/jobs.ts';
import { addActions, addOperations } from './operations.ts';
import { addTop, addViews } from './overview.ts';
import { addTo as addSetup } from './setup.ts';
import { addTo as addSubscriptions } from './subscription/subscriptions.ts';
import { addTo as addTokens } from './subscription/tokens.ts';
import { addTo as addSymbols } from './symbol-config/symbols.ts';
import { addUsers, addWhy } from './users.ts';

/** The commands in the order of the help, each with what gives it description, options and subcommands. */
const COMMANDS: Record<
  string,
  [summary: string, addTo: (command: Command, program: typeof programOf) => void]
> = {
  setup: ['Create what is missing: namespace, search attributes, schedules, database schema.', addSetup],
  doctor: [
    'Check the configuration, Redis, PostgreSQL, Temporal with its schedules and workers, the servers that the roles call, and what waits.',
    addDoctor,
  ],
  top: ['What comes in, goes out, waits and died', addTop],
  views: ["Links to lists in Temporal's Web UI, and to save them there", addViews],
  why: ['What a user got, and why not', addWhy],
  notifications: ['Accepted notifications and their routes: find, look into, cancel', addNotifications],
  'dead-letters': ['Routes that spent their budget: what failed, and why', addDeadLetters],
  replay: ['Try dead-lettered routes again, one or many', addReplay],
  operations: [
    'Operations on many items, such as a replay or a cancellation: find, follow, pause, abort',
    addOperations,
  ],
  malformed: ['Stream entries that could not become a notification', addMalformed],
  channels: ['Push and e-mail: whether they publish', addHeld],
  producers: ['Producers of intents: whether what they publish goes out', addHeld],
  bridge: ['The reader of the intent stream: status, pause, resume', addBridge],
  intents: ['Check and publish intents by hand, see examples of them, and which ones wait', addIntents],
  catalog: [
    'Check a file of notification types, and write what consumers and producers need of it',
    addCatalog,
  ],
  outbox: ["Intents in a producer's database, and the relay that publishes them", addOutbox],
  mobile: ['Push jobs to phones: send, find, look into, replay', addJobs],
  symbols: ['Symbols: which are enabled, and which target has been told so', addSymbols],
  callbacks: [
    'Callbacks about account values: their progress, failures, trackings and entries',
    addCallbacks,
  ],
  subscriptions: [
    'Notification subscriptions: connections of the agent, and whether they are notified',
    addSubscriptions,
  ],
  tokens: ["The agent's notification token: the device that pushes go to", addTokens],
  users: ['What is kept of a user', addUsers],
  keys: ['Keys of encryption: what is still sealed with each, and how an old one gets out of use', addKeys],
  actions: ['What operators asked for', addActions],
  mcp: ["The operator's functions for an assistant (Model Context Protocol)", addMcp],
  recover: ['Repair what a store lost that was put back to an earlier state', addRecover],
  completion: ['Print what a shell needs to complete commands, options and their choices.', addCompletion],
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
 * The program with all of its commands.
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
    .exitOverride();
  for (const [name, [summary, addTo]] of Object.entries(COMMANDS))
    addTo(program.command(name).summary(summary).description(summary), programOf);
  // The overview names each command; the help of a command shows its arguments.
  return program.configureHelp({ ...program.configureHelp(), subcommandTerm: (command) => command.name() });
}

// --- One run -----------------------------------------------------------------------------------------------------------

/** Of help where there is no terminal. */
const DEFAULT_WIDTH = 80;

/** Carries out what the command line asks for. @returns the exit code, once everything is written. */
export function run(shell: Shell): Promise<number> {
  const { stdout, stderr } = shell;
  return invoke(shell, async (invocation) => {
    // `galaxy-notify … | head` closes the pipe early, which is no error.
    stdout.on('error', (error: NodeJS.ErrnoException) => {
      invocation.endNow(error.code === 'EPIPE' ? EXIT.done : EXIT.failed);
    });
    await carryOut(invocation);
    await Promise.all([stdout, stderr].map(written));
  });
}

const written = (output: NodeJS.WritableStream) =>
  new Promise<void>((resolve) => {
    output.write('', () => resolve());
  });

async function carryOut(invocation: Invocation): Promise<void> {
  const { argv, stdout, stderr } = invocation.shell;
  const output = {
    writeOut: (text: string) => stdout.write(text),
    writeErr: (text: string) => stderr.write(printableLines(text)),
    getOutHelpWidth: () => stdout.columns ?? DEFAULT_WIDTH,
    getErrHelpWidth: () => stderr.columns ?? DEFAULT_WIDTH,
  };
  try {
    await programOf(output).parseAsync(argv);
  } catch (error) {
    invocation.exitCode = exitCodeAfter(error, argv);
  }
}

function exitCodeAfter(error: unknown, argv: readonly string[]): number {
  // Commander has said what is wrong, or shown the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
  report(`error: ${printableLines(explain(error, argv.includes('--debug')))}`);
  return exitCodeOf(error);
}

// --- What a shell needs to complete commands, options and their choices ------------------------------------------------

function addCompletion(command: Command): void {
  defineLocal(command, {
    args: [new Argument('<shell>', 'which shell').choices(['bash', 'zsh'])],
    above: '\nIn ~/.bashrc, or in ~/.zshrc behind compinit: source <(galaxy-notify completion bash)\n',
    examples: ['completion bash', 'completion zsh'],
    run: async (_, _options: object, shell: 'bash' | 'zsh') => completionFor(programOf(), shell),
    print: (script) => script,
  });
}

/** The whole tree of commands as one script, so that completing starts no program. */
export function completionFor(program: Command, shell: 'bash' | 'zsh'): string {
  const commands = commandsBelow(program);
  const paths = commands.map((command) => quoted(`/${pathOf(command).replaceAll(' ', '/')}`));
  const choices = commands.flatMap((command) =>
    command.options.flatMap((option) =>
      takesValue(option)
        ? [
            `    ${quoted(`${keyOf(command)} ${option.long}`)}) words=${quoted(option.argChoices?.join(' ') ?? '')} ;;`,
          ]
        : [],
    ),
  );
  const words = [program, ...commands].map(
    (command) => `    ${quoted(keyOf(command))}) words=${quoted(wordsOf(program, command).join(' '))} ;;`,
  );
  return [
    ...(shell === 'zsh' ? ['autoload -U +X bashcompinit && bashcompinit'] : []),
    '_galaxy_notify() {',
    '  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} at= word words=',
    '  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do',
    '    case "$at/$word" in',
    `    ${paths.join('|')}) at="$at/$word" ;;`,
    '    esac',
    '  done',
    '  case "$at $before" in',
    ...choices,
    '    *) case "$at" in',
    ...words,
    '    esac ;;',
    '  esac',
    '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
    '}',
    'complete -o default -F _galaxy_notify galaxy-notify',
  ].join('\n');
}

/** How the script names where it is: `/notifications/list`; the program itself is empty. */
const keyOf = (command: Command): string =>
  command.parent === null ? '' : `/${pathOf(command).replaceAll(' ', '/')}`;

const takesValue = ({ required, long }: Option): boolean => required && long !== undefined;

function wordsOf(program: Command, command: Command): string[] {
  const options = [...command.options, ...program.options].flatMap(({ long, hidden }) =>
    long === undefined || hidden ? [] : [long],
  );
  const choices = command.registeredArguments[0]?.argChoices ?? [];
  return [...new Set([...command.commands.map((one) => one.name()), ...choices, ...options, '--help'])];
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** `completion`: what a shell needs to complete commands, options and their choices. */
import type { Command, Option } from 'commander';
import { Argument } from 'commander';
import { action } from './command.ts';
import { commandsBelow, form, pathOf } from './definition.ts';
import { printLine } from './output.ts';

/** @param whole the program with all of its commands. */
export function addTo(command: Command, whole: () => Promise<Command>): void {
  form(command, {
    args: [new Argument('<shell>', 'which shell').choices(['bash', 'zsh'])],
    above: '\nIn ~/.bashrc, or in ~/.zshrc behind compinit: source <(galaxy-notify completion bash)\n',
    examples: ['completion bash', 'completion zsh'],
  }).action(
    action<object, ['bash' | 'zsh']>(async (_, shell) => {
      printLine(scriptFor(await whole(), shell));
    }),
  );
}

/** The whole tree of commands as one script, so that completing starts no program. */
export function scriptFor(program: Command, shell: 'bash' | 'zsh'): string {
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

/** How commands are defined: their form, what they ask of servers, and how a person sees the answer. */
import type { Command } from 'commander';
import { Argument, Option } from 'commander';
import type { Page } from '../client/lists.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { action, showPage } from './command.ts';
import { limitOption } from './options.ts';
import type { Columns } from './output.ts';
import { printFields, printHeading, printItems, printJson, printLine } from './output.ts';
import type { Dependency, Session } from './session.ts';
import { withSession } from './session.ts';

/** What the help of a command shows. */
export interface Form {
  /** Absent: the command that is given gets it, and none below that. */
  name?: string;
  description?: string;
  /** Flags, description and parser of each. */
  args?: (Argument | readonly [flags: string, description: string, parse?: (text: string) => unknown])[];
  options?: Option[];
  /** What stands above the examples. */
  above?: string;
  /** Without the name of the program. */
  examples: string[];
  /** Lines below the examples. */
  notes?: string[];
}

/** Options that choose, by the field of a filter that each sets. */
export type Filters = Readonly<Record<string, Option>>;

/** @returns the filter of what was given. */
export const filterOf = <Filter extends object>(filters: Filters, options: object): Filter =>
  Object.fromEntries(
    Object.entries(filters).flatMap(([field, one]) => {
      const value = (options as Record<string, unknown>)[one.attributeName()];
      return value === undefined ? [] : [[field, value]];
    }),
  ) as Filter;

/** `run` stands before the functions that get what it returns: their types come from it. */
export interface Definition<S, Options, Args extends unknown[], Result> extends Form {
  /** @returns what `--json` prints. */
  run(session: S, options: Options & GlobalOptions, ...args: Args): Promise<Result>;
  /** Servers that must answer. Default: PostgreSQL. */
  needs?: Dependency[] | ((options: NoInfer<Options>) => Dependency[]);
  /** @throws UsageError before a server is asked. */
  check?(options: NoInfer<Options>, args: NoInfer<Args>): void;
  /** Prints the result for a person, or returns the line that is printed. */
  print?(result: NoInfer<Result>, options: NoInfer<Options>): string | void;
  /** Hints behind the result, and the exit code when it is not 0. */
  end?(result: NoInfer<Result>, options: NoInfer<Options>, args: NoInfer<Args>): ExitCode | void;
}

interface ListDefinition<S, Options, Item> extends Omit<Form, 'name' | 'options'> {
  /** Default: `list`. */
  name?: string;
  filters?: Filters;
  /** @returns the function that reads a page by its filter. Its parameter is annotated: the columns are held against what it returns. */
  read(session: S): (filter: Options & { limit: number }) => Promise<Page<Item>>;
  columns?: NoInfer<Columns<Item>>;
  /** In place of the columns. The second column is the one that links are behind. */
  print?(items: NoInfer<Item>[], options: NonNullable<NoInfer<Options>>): void;
}

export const option = (
  flags: string,
  description: string,
  parse?: (text: string, before: never) => unknown,
): Option => {
  const made = new Option(flags, description);
  return parse ? made.argParser(parse as (text: string) => unknown) : made;
};

/** Adds a command with what its help shows, without what it does. */
export function form(
  group: Command,
  { name, description, args = [], options = [], above = '', examples, notes = [] }: Form,
): Command {
  const command = name === undefined ? group : group.command(name);
  if (description !== undefined) command.description(description);
  for (const one of args) {
    if (one instanceof Argument) command.addArgument(one);
    else if (one[2]) command.argument(one[0], one[1], one[2]);
    else command.argument(one[0], one[1]);
  }
  for (const one of options) command.addOption(one);
  const lines = [...examples.map((line) => `galaxy-notify ${line}`), ...notes].map((line) => `  ${line}`);
  const rest = ['', 'Examples:', ...lines, '', 'Global options and exit codes: galaxy-notify --help'];
  return command.addHelpText('after', above + rest.join('\n'));
}

/** @param open runs the work of a command with its connections. */
function definerOf<S>(open: <T>(needs: Dependency[], work: (session: S) => Promise<T>) => Promise<T>) {
  /** Adds a command that prints one result. */
  function define<Options, Args extends unknown[], Result>(
    group: Command,
    definition: Definition<S, Options, Args, Result>,
  ): void {
    const { needs = ['postgres'], check, run, print, end } = definition;
    form(group, definition).action(
      action<Options, Args>((options, ...args) => {
        check?.(options, args);
        return open(typeof needs === 'function' ? needs(options) : needs, async (session) => {
          const result = await run(session, options, ...args);
          if (options.json) printJson(result);
          else {
            const line = print?.(result, options);
            if (line !== undefined) printLine(line);
          }
          return end?.(result, options, args);
        });
      }),
    );
  }

  /** Adds a command that prints a page of a list, newest first. */
  function list<Options, Item extends object>(
    group: Command,
    { name = 'list', filters = {}, read, columns = {}, print, ...rest }: ListDefinition<S, Options, Item>,
  ): void {
    form(group, { name, options: [...Object.values(filters), limitOption()], ...rest }).action(
      action<Options & { limit: number }>((asked) => {
        const given = { ...asked, ...filterOf(filters, asked) };
        return open(['postgres'], async (session) =>
          showPage(await read(session)(given), given, (items) =>
            print ? print(items, given) : printItems(items, columns, 1),
          ),
        );
      }),
    );
  }

  return { define, list };
}

export const { define, list } = definerOf<Session>(withSession);
/** For commands that ask no server. */
export const { define: defineLocal } = definerOf<undefined>((_, work) => work(undefined));

/** The names that lead to a command, without the program's: `notifications list`. */
export function pathOf(command: Command): string {
  const above = command.parent?.parent ? `${pathOf(command.parent)} ` : '';
  return `${above}${command.name()}`;
}

export const commandsBelow = (command: Command): Command[] =>
  command.commands.flatMap((one) => [one, ...commandsBelow(one)]);

/** Shows the fields of an entry of a stream as they came. */
export function printRawFields(fields: Record<string, string>): void {
  printHeading('Fields of the entry, cut where they are long');
  printFields(Object.entries(fields));
}

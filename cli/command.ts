/** What every command of the CLI has in common: global options, exit codes, help. */
import type { Command } from 'commander';
import type { ExitCode } from './exit-codes.ts';
import { EXIT, EXIT_CODES_HELP } from './exit-codes.ts';
import { printJson, report } from './output.ts';
import type { Page } from '../client/lists.ts';

export interface GlobalOptions {
  json?: boolean;
  debug?: boolean;
}

/**
 * An action as commander calls it.
 *
 * @param run gets the options, global ones included, and the arguments; it returns the exit code when that is not 0.
 */
export function action<Options, Args extends unknown[] = []>(
  run: (options: Options & GlobalOptions, ...args: Args) => Promise<ExitCode | void>,
): (...given: unknown[]) => Promise<void> {
  return async (...given) => {
    const command = given.at(-1) as Command;
    const code = await run(
      command.optsWithGlobals<Options & GlobalOptions>(),
      ...(command.processedArgs as Args),
    );
    process.exitCode = code ?? EXIT.done;
  };
}

/** Examples and exit codes below a command's help. */
export function helpWith(...examples: string[]): string {
  return ['', 'Examples:', ...examples.map((line) => `  ${line}`), '', EXIT_CODES_HELP].join('\n');
}

/** Prints a list, says when there is more of it, and ends with `nothing` when it is empty. */
export function showPage<T>(
  { items, hasMore }: Page<T>,
  { json, limit }: GlobalOptions & { limit: number },
  printItems: (items: T[]) => void,
): ExitCode {
  if (json) printJson({ items, hasMore });
  else if (items.length > 0) printItems(items);
  if (items.length === 0) report('nothing matched');
  if (hasMore) report(`the newest ${limit} are shown, there are more: narrow it down, or raise --limit`);
  return items.length === 0 ? EXIT.nothing : EXIT.done;
}

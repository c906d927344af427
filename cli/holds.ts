/** `… pause` and `… resume`, of everything that operators pause. */
import type { Argument, Command, Option } from 'commander';
import type { Operator } from '../client/operator.ts';
import { action } from './command.ts';
import { form } from './definition.ts';
import { givenOf, requestedByOption } from './options.ts';
import { printJson } from './output.ts';
import type { Dependency } from './session.ts';
import { withSession } from './session.ts';

/** As the options of a command have it. */
interface Request {
  requestedBy: string;
  reason?: string;
  ratePerSecond?: number;
}

interface HoldCommand<State, Name> {
  description: string;
  /** Arguments and options of the example in the help. */
  example: string;
  /** Names what is paused; absent where there is one thing. */
  argument?: Argument;
  /** Besides `--requested-by`: `--reason`, `--rate`. */
  options?: Option[];
  needs: Dependency[];
  change(operator: Operator, request: Request, name: Name): Promise<State>;
  print(state: State, name: Name): void;
  /** Reports what is to be known besides. */
  note?(state: State, name: Name, operator: Operator): Promise<void> | void;
}

/** @param group the commands of what is paused, such as `channels`. */
export function addHoldCommand<State, Name = undefined>(
  group: Command,
  verb: 'pause' | 'resume' | 'abort',
  { description, example, argument, options = [], needs, change, print, note }: HoldCommand<State, Name>,
): void {
  form(group, {
    ...{ name: verb, description, args: argument ? [argument] : [] },
    options: [...options, requestedByOption()],
    examples: [`${group.name()} ${verb} ${example}`.trimEnd()],
  }).action(
    action<{ requestedBy: string; reason?: string; rate?: number }, [Name]>(
      ({ json, requestedBy, reason, rate: ratePerSecond }, name) =>
        withSession(needs, async ({ operator }) => {
          const request = { requestedBy, ...givenOf({ reason, ratePerSecond }) };
          const state = await change(operator, request, name);
          if (json) printJson(state);
          else print(state, name);
          await note?.(state, name, operator);
        }),
    ),
  );
}

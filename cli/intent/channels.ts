/** `channels` and `producers`: pausing and resuming push, e-mail, or all that comes from one producer, and its weight. */
import type { Command } from 'commander';
import { Argument, InvalidArgumentError, Option } from 'commander';
import type { Producer } from '../../api/intent/catalog.ts';
import type { HeldView, Pause } from '../../client/intent/channels.ts';
import { LEAST_WEIGHT, MOST_WEIGHT, USUAL_WEIGHT } from '../../client/intent/weights.ts';
import type { Operator } from '../../client/operator.ts';
import type { HoldRequest, ResumeRequest } from '../../workflows/hold-contract.ts';
import { DEFAULT_DRAIN_RATE, MAX_DRAIN_RATE } from '../../workflows/hold-contract.ts';
import type { ChannelName, ChannelState } from '../../workflows/intent/channel-contract.ts';
import { CHANNEL_NAMES } from '../../workflows/intent/channel-contract.ts';
import { UsageError } from '../command.ts';
import type { Columns } from '../definition.ts';
import { addHoldCommand, define, option, printItems } from '../definition.ts';
import { parseCount, parseProducer, reasonOption, requestedByOption } from '../options.ts';
import { countOf, printLine, report } from '../output.ts';

/** What is paused and resumed by a group of commands. */
interface Held<Noun extends string, Name extends string> {
  group: string;
  /** `channel`: of the argument, and where a view has the name. */
  noun: Noun;
  pauses: string;
  resumes: string;
  /** Checks a name; it is one of the choices where they are known. */
  argument(name: string): Argument;
  /** Whether Temporal serves them by weights. */
  isWeighed: boolean;
  examples: { pause: string; resume: string };
  operations(operator: Operator): {
    list(): Promise<(HeldView & Record<Noun, Name>)[]>;
    pause(name: Name, request: HoldRequest): Promise<Pause>;
    resume(name: Name, request: ResumeRequest): Promise<ChannelState>;
  };
}

const CHANNELS: Held<'channel', ChannelName> = {
  group: 'channels',
  noun: 'channel',
  pauses: 'Pause a channel until it is resumed, also over restarts. Its routes wait and spend no budget.',
  resumes: 'Resume a channel. Waiting routes are released at a set rate.',
  argument: (name) => new Argument(name, 'which channel').choices(CHANNEL_NAMES),
  isWeighed: false,
  examples: { pause: "email --reason 'Mail Service is being moved'", resume: 'email --rate 20' },
  operations: ({ channels }) => channels,
};

const HELD_PRODUCERS: Held<'producer', Producer> = {
  group: 'producers',
  noun: 'producer',
  pauses:
    'Pause a producer until it is resumed, also over restarts. Its intents are accepted; their routes wait and spend no budget.',
  resumes: 'Resume a producer. Waiting routes are released at a set rate, those that wait longest first.',
  argument: (name) => new Argument(name, 'which producer').argParser(parseProducer),
  isWeighed: true,
  examples: { pause: "game_lobby --reason 'release 4.2 sends doubles'", resume: 'game_lobby --rate 200' },
  operations: ({ producers }) => producers,
};

export function addTo(group: Command): void {
  if (group.name() === CHANNELS.group) return addCommands(group, CHANNELS);
  addCommands(group, HELD_PRODUCERS);
  addWeight(group);
}

function addCommands<Noun extends string, Name extends string>(
  commands: Command,
  held: Held<Noun, Name>,
): void {
  const { group, noun } = held;
  const nameArgument = () => held.argument(`<${noun}>`);

  define(commands, {
    name: 'list',
    description: `List the ${group} with their state and the routes that wait for them.`,
    examples: [`${group} list`],
    run: async ({ operator }) => ({ items: await held.operations(operator).list() }),
    print({ items }) {
      const columns: Columns<(typeof items)[number]> = {
        [noun.toUpperCase()]: (view) => view[noun],
        ...{ STATUS: 'status', SINCE: 'since', BY: 'changedBy', 'OPEN ROUTES': 'openRoutes' },
        ...(held.isWeighed ? { WEIGHT: 'weight' } : {}),
        REASON: 'reason',
      };
      printItems(items, columns, { flexible: held.isWeighed ? 6 : 5 });
      for (const view of items) {
        const { status, drain } = view;
        if (status !== 'draining' || !drain) continue;
        report(
          `${view[noun]}: ${drain.released} waiting routes released so far, ${drain.ratePerSecond} per second`,
        );
      }
      const silent = items.filter(({ isWorkflowSilent }) => isWorkflowSilent);
      if (silent.length === 0) return;
      const names = silent.map((view) => view[noun]).join(', ');
      report(`no answer from the workflow of ${names}: shown as the database has it`);
    },
  });

  addHoldCommand<Pause, Name>(commands, 'pause', {
    description: held.pauses,
    example: held.examples.pause,
    argument: nameArgument(),
    options: [reasonOption()],
    // An operator who stops something does not wait for Temporal.
    needs: ['postgres'],
    change: (operator, request, name) => held.operations(operator).pause(name, request),
    print: printState,
    note({ isWorkflowSilent }, name) {
      report(`new publications wait until: galaxy-notify ${group} resume ${name}`);
      if (isWorkflowSilent)
        report('its workflow has not answered yet, and does not need to: the database holds the pause');
    },
  });

  addHoldCommand(commands, 'resume', {
    description: held.resumes,
    example: held.examples.resume,
    argument: nameArgument(),
    options: [
      new Option(
        '--rate <n>',
        `waiting routes released per second, ${DEFAULT_DRAIN_RATE} unless set`,
      ).argParser(parseCount(1, MAX_DRAIN_RATE)),
    ],
    needs: ['postgres', 'temporal'],
    change: (operator, request, name: Name) => held.operations(operator).resume(name, request),
    print: printState,
    async note(_, name, operator) {
      const view = (await held.operations(operator).list()).find((one) => one[noun] === name);
      if (view) report(`${countOf(view.openRoutes, 'route')} open of ${name}`);
    },
  });
}

interface WeightOptions {
  clear?: boolean;
  requestedBy: string;
}

function addWeight(producers: Command): void {
  define(producers, {
    name: 'weight',
    description:
      "Set a producer's share of what waits in Temporal: with 0.2 it gets a fifth of what another one gets. Each has 1 at first.",
    args: [
      HELD_PRODUCERS.argument('<producer>'),
      ['[weight]', `from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`, parseWeight],
    ],
    options: [option('--clear', 'give it the usual weight again'), requestedByOption()],
    examples: ['producers weight game_lobby 0.2', 'producers weight game_lobby --clear'],
    needs: ['postgres', 'temporal'],
    async run({ operator }, { requestedBy }: WeightOptions, producer: Producer, weight: number | undefined) {
      await operator.producers.weigh(producer, { weight, requestedBy });
      return { producer, weight: weight ?? USUAL_WEIGHT };
    },
    check({ clear }, [, weight]) {
      if ((weight === undefined) === !clear) throw new UsageError('give a weight, or --clear');
    },
    print: ({ producer, weight }) => `${producer} has the weight ${weight}`,
    end: () => report('it holds for what comes from now on, where the server has fairness switched on'),
  });
}

function parseWeight(text: string): number {
  const weight = /^\d{1,4}(\.\d{1,3})?$/.test(text) ? Number(text) : NaN;
  if (weight >= LEAST_WEIGHT && weight <= MOST_WEIGHT) return weight;
  throw new InvalidArgumentError(`Give a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}, such as 0.2.`);
}

function printState({ status, drain }: ChannelState, name: string): void {
  const rate = drain && status === 'draining' ? `, ${drain.ratePerSecond} per second` : '';
  printLine(`${name} is ${status}${rate}`);
}

/** `channels` and `producers`: pausing and resuming push, e-mail, or all that comes from one producer, and its weight. */
import type { Command } from 'commander';
import { Argument, InvalidArgumentError } from 'commander';
import { given } from '../../api/given.ts';
import type { Producer } from '../../api/intent/catalog.ts';
import type { HeldView, Pause } from '../../client/intent/channels.ts';
import { LEAST_WEIGHT, MOST_WEIGHT, USUAL_WEIGHT } from '../../client/intent/weights.ts';
import type { Operator } from '../../client/operator.ts';
import type { HoldRequest, ResumeRequest } from '../../workflows/hold-contract.ts';
import { DEFAULT_DRAIN_RATE, MAX_DRAIN_RATE } from '../../workflows/hold-contract.ts';
import type { ChannelName, ChannelState } from '../../workflows/intent/channel-contract.ts';
import { CHANNEL_NAMES } from '../../workflows/intent/channel-contract.ts';
import { UsageError } from '../command.ts';
import { define, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseCount, parseProducer, reasonOption, requestOf, requestedByOption } from '../options.ts';
import type { Columns } from '../output.ts';
import { countOf, printItems, report } from '../output.ts';

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

  define(commands, {
    name: 'pause',
    description: held.pauses,
    args: [nameArgument()],
    options: [reasonOption(), requestedByOption()],
    examples: [`${group} pause ${held.examples.pause}`],
    // With PostgreSQL alone: an operator who stops something does not wait for Temporal.
    run: ({ operator }, options: Requested, name: Name) =>
      held.operations(operator).pause(name, requestOf(options)),
    print: printState,
    end({ isWorkflowSilent }, _, [name]) {
      report(`new publications wait until: galaxy-notify ${group} resume ${name}`);
      if (isWorkflowSilent)
        report('its workflow has not answered yet, and does not need to: the database holds the pause');
    },
  });

  define(commands, {
    name: 'resume',
    description: held.resumes,
    args: [nameArgument()],
    options: [
      option(
        '--rate <n>',
        `waiting routes released per second, ${DEFAULT_DRAIN_RATE} unless set`,
        parseCount(1, MAX_DRAIN_RATE),
      ),
      requestedByOption(),
    ],
    examples: [`${group} resume ${held.examples.resume}`],
    needs: ['postgres', 'temporal'],
    run: ({ operator }, { rate, requestedBy }: Requested & { rate?: number }, name: Name) =>
      held.operations(operator).resume(name, { requestedBy, ...given({ ratePerSecond: rate }) }),
    print: printState,
    async end(_result, _options, [name], { operator }) {
      const view = (await held.operations(operator).list()).find((one) => one[noun] === name);
      if (view) report(`${countOf(view.openRoutes, 'route')} open of ${name}`);
    },
  });
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
    async run(
      { operator },
      { requestedBy }: Requested & { clear?: boolean },
      producer: Producer,
      weight?: number,
    ) {
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

function printState({ status, drain }: ChannelState, _options: object, [name]: [string]): string {
  const rate = drain && status === 'draining' ? `, ${drain.ratePerSecond} per second` : '';
  return `${name} is ${status}${rate}`;
}

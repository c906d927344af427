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
import { UsageError, action, helpWith } from '../command.ts';
import { addHoldCommand } from '../holds.ts';
import { parseCount, parseProducer, reasonOption, requestedByOption } from '../options.ts';
import { countOf, printJson, printLine, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';

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

  commands
    .command('list')
    .description(`List the ${group} with their state and the routes that wait for them.`)
    .addHelpText('after', helpWith(`galaxy-notify ${group} list`))
    .action(
      action(({ json }) =>
        withSession(['postgres'], async ({ operator }) => {
          const views = await held.operations(operator).list();
          if (json) return printJson({ items: views });
          const ifWeighed = <T>(value: T) => (held.isWeighed ? [value] : []);
          printTable(
            [
              ...[noun.toUpperCase(), 'STATUS', 'SINCE', 'BY', 'OPEN ROUTES'],
              ...ifWeighed('WEIGHT'),
              'REASON',
            ],
            views.map((view) => [
              ...[view[noun], view.status, view.since, view.changedBy, view.openRoutes],
              ...ifWeighed(view.weight),
              view.reason,
            ]),
            { flexible: held.isWeighed ? 6 : 5, links: views.map(({ link }) => link) },
          );
          for (const view of views) {
            const { status, drain } = view;
            if (status !== 'draining' || !drain) continue;
            report(
              `${view[noun]}: ${drain.released} waiting routes released so far, ${drain.ratePerSecond} per second`,
            );
          }
          const silent = views.filter(({ isWorkflowSilent }) => isWorkflowSilent);
          if (silent.length > 0) {
            const names = silent.map((view) => view[noun]).join(', ');
            report(`no answer from the workflow of ${names}: shown as the database has it`);
          }
        }),
      ),
    );

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
  producers
    .command('weight')
    .description(
      "Set a producer's share of what waits in Temporal: with 0.2 it gets a fifth of what another one gets. Each has 1 at first.",
    )
    .addArgument(HELD_PRODUCERS.argument('<producer>'))
    .argument('[weight]', `from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`, parseWeight)
    .option('--clear', 'give it the usual weight again')
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify producers weight game_lobby 0.2',
        'galaxy-notify producers weight game_lobby --clear',
      ),
    )
    .action(
      action<WeightOptions, [Producer, number | undefined]>(
        ({ json, clear, requestedBy }, producer, weight) => {
          if ((weight === undefined) === !clear) throw new UsageError('give a weight, or --clear');
          return withSession(['postgres', 'temporal'], async ({ operator }) => {
            await operator.producers.weigh(producer, { weight, requestedBy });
            const now = weight ?? USUAL_WEIGHT;
            if (json) printJson({ producer, weight: now });
            else printLine(`${producer} has the weight ${now}`);
            report('it holds for what comes from now on, where the server has fairness switched on');
          });
        },
      ),
    );
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

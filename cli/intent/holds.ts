/** `channels`, `producers` and `bridge`: pausing and resuming push, e-mail, a producer and intake, and the weight of a producer. */
import type { Command } from 'commander';
import { Argument, InvalidArgumentError } from 'commander';
import { given } from '../../api/given.ts';
import type { Producer } from '../../api/intent/catalog.ts';
import { CHANNELS } from '../../api/intent/catalog.ts';
import type { BridgeStatus, HeldView } from '../../client/intent/holds.ts';
import { DEFAULT_RELEASE_RATE, LEAST_WEIGHT, MOST_WEIGHT, USUAL_WEIGHT } from '../../client/intent/holds.ts';
import { MAX_REPLAY_RATE } from '../../client/lists.ts';
import { EXIT } from '../command.ts';
import { define, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseCount, parseProducer, reasonOption, requestOf, requestedByOption } from '../options.ts';
import { countOf, printHeading, printItems, printView, report } from '../output.ts';

const producerArgument = () => new Argument('<producer>', 'which producer').argParser(parseProducer);

/** The groups of commands, with what differs between them. */
const HELD = {
  channels: {
    pauses: 'Pause a channel until it is resumed, also over restarts. Its routes wait and spend no budget.',
    resumes: 'Resume a channel. Waiting routes are released at a set rate.',
    argument: () => new Argument('<channel>', 'which channel').choices(CHANNELS),
    examples: { pause: "email --reason 'Mail Service is being moved'", resume: 'email --rate 20' },
  },
  producers: {
    pauses:
      'Pause a producer until it is resumed, also over restarts. Its intents are accepted; their routes wait and spend no budget.',
    resumes: 'Resume a producer. Waiting routes are released at a set rate, those that wait longest first.',
    argument: producerArgument,
    examples: { pause: "game_lobby --reason 'release 4.2 sends doubles'", resume: 'game_lobby --rate 200' },
  },
};

type View = HeldView & { channel?: string; producer?: string };
const nameOf = ({ channel, producer = channel! }: View): string => producer;

export function addHeld(commands: Command): void {
  const group = commands.name() as keyof typeof HELD;
  const { pauses, resumes, argument, examples } = HELD[group];
  const isProducers = group === 'producers';

  define(commands, {
    name: 'list',
    description: `List the ${group} with their state and the routes that wait for them.`,
    examples: [`${group} list`],
    run: async ({ operator }): Promise<{ items: View[] }> => ({ items: await operator[group].list() }),
    print({ items }) {
      printItems(items, {
        [isProducers ? 'PRODUCER' : 'CHANNEL']: nameOf,
        STATUS: statusLine,
        ...{ SINCE: 'since', BY: 'changedBy', 'OPEN ROUTES': 'openRoutes' },
        ...(isProducers ? { WEIGHT: 'weight' } : {}),
        REASON: 'reason',
      });
    },
  });

  define(commands, {
    name: 'pause',
    description: pauses,
    args: [argument()],
    options: [reasonOption(), requestedByOption()],
    examples: [`${group} pause ${examples.pause}`],
    // With PostgreSQL alone: an operator who stops something does not wait for Temporal.
    run: ({ operator }, options: Requested, name: string): Promise<View> =>
      operator[group].pause(name as never, requestOf(options)),
    print: printState,
    end: (_result, _options, [name]) =>
      report(`new publications wait until: galaxy-notify ${group} resume ${name}`),
  });

  define(commands, {
    name: 'resume',
    description: resumes,
    args: [argument()],
    options: [
      option(
        '--rate <n>',
        `waiting routes released per second, ${DEFAULT_RELEASE_RATE} unless set`,
        parseCount(1, MAX_REPLAY_RATE),
      ),
      requestedByOption(),
    ],
    examples: [`${group} resume ${examples.resume}`],
    needs: ['postgres', 'temporal'],
    run: ({ operator }, { rate, requestedBy }: Requested & { rate?: number }, name: string): Promise<View> =>
      operator[group].resume(name as never, { requestedBy, ...given({ ratePerSecond: rate }) }),
    print: printState,
    end: ({ openRoutes }: View, _options, [name]) =>
      report(`${countOf(openRoutes, 'route')} open of ${name}`),
  });

  if (isProducers) addWeight(commands);
}

function addWeight(producers: Command): void {
  define(producers, {
    name: 'weight',
    description:
      "Set a producer's share of what waits in Temporal: with 0.2 it gets a fifth of what another one gets. Each has 1 at first.",
    args: [
      producerArgument(),
      ['<weight>', `from ${LEAST_WEIGHT} to ${MOST_WEIGHT}; ${USUAL_WEIGHT} is the usual one`, parseWeight],
    ],
    options: [requestedByOption()],
    examples: ['producers weight game_lobby 0.2', 'producers weight game_lobby 1'],
    needs: ['postgres', 'temporal'],
    async run({ operator }, { requestedBy }: Requested, producer: Producer, weight: number) {
      await operator.producers.weigh(producer, { weight, requestedBy });
      return { producer, weight };
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

const statusLine = ({ status, ratePerSecond }: View): string =>
  ratePerSecond === undefined ? status : `${status}, ${ratePerSecond} per second`;

const printState = (view: View): string => `${nameOf(view)} is ${statusLine(view)}`;

export function addBridge(bridge: Command): void {
  define(bridge, {
    name: 'status',
    description: 'Show the reader: whether it reads, where it is, how far behind, and what is wrong.',
    examples: ['bridge status', 'bridge status --json'],
    needs: ['temporal'],
    run: ({ operator }) => operator.bridge.status(),
    print: printStatus,
    end({ state }) {
      if (state !== 'not running') return;
      report('the service starts the reader when it starts');
      return EXIT.nothing;
    },
  });

  define(bridge, {
    name: 'pause',
    description:
      'Stop intake. New entries wait in Redis; accepted notifications are still delivered. The pause outlasts restarts of the service.',
    options: [reasonOption().makeOptionMandatory(), requestedByOption()],
    examples: ["bridge pause --reason 'database maintenance'"],
    needs: ['temporal'],
    run: ({ operator }, request: Required<Requested>) => operator.bridge.pause(request),
    print: printStatus,
    end: () => report('paused, also over restarts of the service, until: galaxy-notify bridge resume'),
  });

  define(bridge, {
    name: 'resume',
    description: 'Start intake again, from the offset: nothing is lost.',
    options: [requestedByOption()],
    examples: ['bridge resume'],
    needs: ['temporal'],
    run: ({ operator }, request: Requested) => operator.bridge.resume(request),
    print: printStatus,
  });
}

function printStatus({ progress, pause, stream, workflowId: _, isPaused: _paused, ...status }: BridgeStatus) {
  printHeading(`Reader of ${stream}`);
  const { findings = [], seen: _seen, stream: _stream, ...read } = progress ?? {};
  printView({ ...status, pausedBy: pause?.by, since: pause?.since, reason: pause?.reason, ...read });
  if (findings.length === 0) return;
  printHeading('Findings');
  printItems(findings, {
    ...{ KIND: 'kind', MESSAGE: 'message' },
    SINCE: ({ sinceMs }) => new Date(sinceMs),
  });
}

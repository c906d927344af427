/** `top`: everything that is under way, again and again. */
import type { Command } from 'commander';
import type { Top, TopOfKind } from '../client/top.ts';
import { action } from './command.ts';
import { form, option } from './definition.ts';
import { durationOption } from './options.ts';
import type { Columns } from './output.ts';
import { durationOf, printHeading, printItems, printJson, report } from './output.ts';
import { withSession } from './session.ts';

/** Lines of each table below that of the kinds: all of it fits a screen. */
const MOST_LINES = 5;
/** A shorter wait needs no action of an operator, ms. */
const LONG_MS = 120_000;

/** The command that shows what died. */
const NEXT: Record<TopOfKind['kind'], string> = {
  intent: 'dead-letters list',
  'mobile-push': 'mobile list --status failed',
  'symbol-config': 'symbols status',
  'account-callback': 'callbacks failed --dead',
  subscription: 'subscriptions list --given-up',
};

interface Options {
  /** ms. */
  interval: number;
  once?: boolean;
}

export function addTo(command: Command): void {
  form(command, {
    description:
      'Show of each kind of work what comes in and goes out per second, what waits and for how long, and what died of which failure, again and again until Ctrl-C: in place in a terminal, below each other elsewhere. It takes no longer the more rows there are.',
    options: [
      durationOption('--interval <duration>', 'time between two looks', '2s'),
      option('--once', 'look once'),
    ],
    examples: ['top', 'top --once --json', 'top --interval 1m --json >> top.log      an object a line'],
  }).action(
    action<Options>(
      ({ json }) =>
        // No server is needed: what one of them does not say is missing.
        withSession([], async ({ operator }) => {
          const found = await operator.top();
          if (json) return printJson(found);
          printTop(found);
          for (const { kind, unknown } of found.kinds) for (const what of unknown) report(`${kind}: ${what}`);
        }),
      ({ interval, once }) => (once ? undefined : interval),
    ),
  );
}

function printTop({ kinds }: Top): void {
  printItems(kinds, {
    KIND: 'kind',
    'IN/S': (kind) => rateOf(kind.arrivedPerSecond),
    'OUT/S': (kind) => rateOf(kind.donePerSecond),
    'TASKS/S': (kind) => rateOf(kind.tasksPerSecond),
    BACKLOG: 'tasksWaiting',
    WAITING: waitingOf,
    OLDEST: (kind) => ageOf(oldestOf(kind)),
    DEAD: deadOf,
  });
  const waits = kinds.flatMap(({ kind, waits: all }) => all.map((wait) => ({ kind, ...wait })));
  printWorst('Waits', waits, ({ oldestMs }) => oldestMs, {
    ...{ KIND: 'kind', WHAT: 'what', 'HOW MANY': 'count' },
    OLDEST: ({ oldestMs }) => ageOf(oldestMs),
  });
  const dead = kinds.flatMap(({ kind, dead: all }) => all.map((one) => ({ kind, ...one })));
  printWorst('Dead', dead, ({ count }) => count, { KIND: 'kind', FAILURE: 'failure', 'HOW MANY': 'count' });
  const next = kinds.filter((kind) => deadOf(kind) > 0).map(({ kind }) => NEXT[kind]);
  if (kinds.some((kind) => oldestOf(kind) > LONG_MS)) next.push('doctor');
  if (next.length > 0) report(`next: ${next.map((one) => `galaxy-notify ${one}`).join(', ')}`);
}

function printWorst<Item extends object>(
  title: string,
  items: Item[],
  badnessOf: (item: Item) => number,
  columns: Columns<Item>,
): void {
  if (items.length === 0) return;
  printHeading(title);
  const worst = items.toSorted((one, other) => badnessOf(other) - badnessOf(one));
  printItems(worst.slice(0, MOST_LINES), columns, { flexible: 1 });
}

const rateOf = (rate: number | undefined): string | undefined => rate?.toFixed(1);
const ageOf = (ms: number): string | undefined => (ms === 0 ? undefined : durationOf(ms));
const waitingOf = ({ waits }: TopOfKind): number => waits.reduce((sum, { count = 0 }) => sum + count, 0);
const oldestOf = ({ waits }: TopOfKind): number => Math.max(0, ...waits.map(({ oldestMs }) => oldestMs));
const deadOf = ({ dead }: TopOfKind): number => dead.reduce((sum, { count }) => sum + count, 0);

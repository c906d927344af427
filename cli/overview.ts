/** What an operator looks at first: `top`, everything that is under way; `views`, lists in the Web UI. */
import type { Command } from 'commander';
import type { View } from '../client/resources.ts';
import type { Top, TopOfKind } from '../client/top.ts';
import { define, option } from './definition.ts';
import type { Columns } from './output.ts';
import { durationOf, printHeading, printItems, report } from './output.ts';

export function addViews(command: Command): void {
  define<{ save?: boolean }, [], { items: View[] }>(command, {
    description:
      "Print links to the lists that operators need in Temporal's Web UI: dead letters, what is held, open operations, what waits, failures.",
    options: [
      option('--save', 'links that also save each list among the views of the browser; open each once'),
    ],
    examples: ['views', 'views --save --json'],
    // No server is asked.
    needs: [],
    run: async ({ operator }) => ({ items: operator.views() }),
    print({ items }, { save }) {
      printItems(
        items.map(({ link, saveLink, ...view }) => ({ ...view, link: save ? saveLink : link })),
        { VIEW: 'name', QUERY: 'query' },
      );
      if (items.some(({ link }) => link === undefined))
        report('there are no links: NOTIFICATION_TEMPORAL_UI_URL says where the Web UI is');
    },
  });
}

// --- top ---------------------------------------------------------------------------------------------------------------

/** Lines of each table below that of the kinds: all of it fits a screen. */
const MOST_LINES = 5;

export function addTop(command: Command): void {
  define(command, {
    description:
      'Show of each kind of work what comes in and goes out per second, what waits and for how long, and what died of which failure. It takes no longer the more rows there are.',
    examples: ['top', 'top --json'],
    notes: ['watch -n 2 galaxy-notify top      again and again'],
    // No server is needed: what one of them does not say is missing.
    needs: [],
    run: ({ operator }) => operator.top(),
    print: printTop,
    end({ kinds }) {
      for (const { kind, unknown } of kinds) for (const cause of unknown) report(`${kind}: ${cause}`);
    },
  });
}

function printTop({ kinds }: Top): void {
  printItems(kinds, {
    KIND: 'kind',
    'IN/S': (kind) => rateOf(kind.arrivedPerSecond),
    'OUT/S': (kind) => rateOf(kind.donePerSecond),
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
  printItems(worst.slice(0, MOST_LINES), columns);
}

const rateOf = (rate: number | undefined): string | undefined => rate?.toFixed(1);
const ageOf = (ms: number): string | undefined => (ms === 0 ? undefined : durationOf(ms));
const waitingOf = ({ waits }: TopOfKind): number => waits.reduce((sum, { count = 0 }) => sum + count, 0);
const oldestOf = ({ waits }: TopOfKind): number => Math.max(0, ...waits.map(({ oldestMs }) => oldestMs));
const deadOf = ({ dead }: TopOfKind): number => dead.reduce((sum, { count }) => sum + count, 0);

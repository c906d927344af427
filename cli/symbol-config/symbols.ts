/** `symbols`: which symbols are enabled, and which target has been told so. */
import type { Command, Option } from 'commander';
import type { Spread, SymbolStatus, ToldChange } from '../../client/symbol-config/symbols.ts';
import { EXIT } from '../command.ts';
import type { Form } from '../definition.ts';
import { define, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseCount, requestedByOption, waitLimitOption } from '../options.ts';
import { capital, countOf, printItems, report } from '../output.ts';
import type { Session } from '../session.ts';

interface ChangeOptions extends Requested {
  json?: boolean;
  wait?: boolean;
  timeout: number;
}

export function addTo(symbols: Command): void {
  define(symbols, {
    name: 'list',
    description: 'List the symbols, by name.',
    examples: ['symbols list', 'symbols list --json'],
    run: async ({ operator }) => ({ items: await operator.symbols.list() }),
    print: ({ items }) =>
      printItems(items, [
        'symbol',
        'isEnabled',
        'ticker',
        'decimals',
        'priceScale',
        'updatedAt',
        'changedBy',
      ]),
  });

  for (const [name, example, rule] of [
    ['enable', 'SOL DOGE', 'All symbols of a command are one change.'],
    ['disable', 'DOGE', 'The last one that is enabled cannot be disabled.'],
  ] as const) {
    addChange(symbols, {
      name,
      description: `${capital(name)} symbols and push the new list to every target. ${rule}`,
      args: [['<symbol...>', 'which']],
      options: [requestedByOption()],
      examples: [`symbols ${name} ${example} --wait`],
      make: ({ operator }, { requestedBy }, names: string[]) => operator.symbols[name](names, requestedBy),
    });
  }

  addChange(symbols, {
    name: 'set',
    description: 'Add a symbol, enabled, or change what collectors know about it, and push the new list.',
    args: [['<symbol>', 'its name']],
    options: [
      option('--ticker <text>', 'the ticker whose prices it has').makeOptionMandatory(),
      option('--decimals <n>', 'decimals of a quantity, 0 to 30', parseCount(0, 30)).makeOptionMandatory(),
      option(
        '--price-scale <n>',
        'what a price is multiplied with',
        parseCount(1, 999_999_999),
      ).makeOptionMandatory(),
      requestedByOption(),
    ],
    examples: ['symbols set LINK --ticker LINK-PERP --decimals 1 --price-scale 10000'],
    make: (
      { operator },
      { ticker, decimals, priceScale, requestedBy }: ChangeOptions & NewSymbol,
      symbol: string,
    ) => operator.symbols.set({ symbol, ticker, decimals, priceScale }, requestedBy),
  });

  addChange(symbols, {
    name: 'push',
    description: 'Push the current list to every target now, also to targets that have it.',
    options: [requestedByOption()],
    examples: ['symbols push --wait'],
    make: ({ operator }, options: ChangeOptions) => operator.symbols.push(options),
  });

  define(symbols, {
    name: 'status',
    description: 'Show which target has which version, what failed, and when the next push is.',
    options: [option('--behind', 'only targets that have not the newest version, or whose last push failed')],
    examples: ['symbols status --behind', 'symbols status --json'],
    async run({ operator }, { behind }: { behind?: boolean }) {
      const status = await operator.symbols.status();
      return behind ? { ...status, targets: status.targets.filter(({ isBehind }) => isBehind) } : status;
    },
    print: printStatus,
  });
}

interface NewSymbol {
  ticker: string;
  decimals: number;
  priceScale: number;
}

interface Change<Options, Args extends unknown[]> extends Form {
  options: Option[];
  make(session: Session, options: Options, ...args: Args): Promise<ToldChange>;
}

/** A command that changes the list. */
function addChange<Options extends ChangeOptions, Args extends unknown[]>(
  symbols: Command,
  { make, options, ...rest }: Change<Options, Args>,
): void {
  const waits = [
    option('--wait', 'wait until every target has acknowledged; exit code 1 when some have not'),
    waitLimitOption('that'),
  ];
  define(symbols, {
    ...{ options: [...options, ...waits], ...rest },
    needs: ['postgres', 'temporal'],
    async run(session, given: Options, ...args: Args): Promise<ToldChange | Spread> {
      const told = await make(session, given, ...args);
      return given.wait ? session.operator.symbols.wait(told, { limitMs: given.timeout }) : told;
    },
    print: (made) =>
      'change' in made
        ? 'the list is being pushed'
        : `version ${made.version}: ${made.acknowledged} of ${countOf(made.targets, 'target')} acknowledged`,
    end(made) {
      if ('change' in made) return report('which targets have it: galaxy-notify symbols status');
      const { isComplete, version, behind } = made;
      if (isComplete) return EXIT.done;
      if (version === 0) report('no worker has taken the change yet');
      else report(behind.length > 0 ? `behind: ${behind.join(', ')}` : 'the push is still under way');
      return EXIT.failed;
    },
  });
}

/** Targets with most failures first. */
function printStatus({ targets, version, live, link }: SymbolStatus): void {
  const shown = targets.toSorted((one, other) => other.consecutiveFailures - one.consecutiveFailures);
  if (shown.length > 0) {
    printItems(shown, [
      ...(['target', 'kind', 'geo', 'acknowledgedVersion', 'acknowledgedAt'] as const),
      ...(['consecutiveFailures', 'lastError'] as const),
    ]);
  }
  report(`version ${version}: ${targets.filter(({ isBehind }) => isBehind).length} targets behind`);
  if (!live) report('no answer from the workflow: shown as the database has it');
  else {
    const { alarm, isListEmpty } = live;
    if (isListEmpty) report(`no symbol is enabled; targets keep version ${version}`);
    if (alarm) report(`next push ${new Date(alarm.atMs).toISOString()} (${alarm.purpose})`);
  }
  if (link !== undefined) report(link);
}

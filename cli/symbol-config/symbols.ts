/** `symbols`: which symbols are enabled, and which target has been told so. */
import type { Command, Option } from 'commander';
import { Argument } from 'commander';
import type { Spread, SymbolStatus, ToldChange } from '../../client/symbol-config/symbols.ts';
import { MAX_CRAWL_INTERVAL_MS, MIN_CRAWL_INTERVAL_MS } from '../../workflows/symbol-config/contract.ts';
import { EXIT, UsageError } from '../command.ts';
import type { Form } from '../definition.ts';
import { define, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { durationOption, parseCount, requestedByOption, waitLimitOption } from '../options.ts';
import { capital, countOf, durationOf, printItems, printLine, report } from '../output.ts';
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
    options: [option('--enabled', 'enabled symbols only'), option('--disabled', 'disabled symbols only')],
    examples: ['symbols list', 'symbols list --disabled --json'],
    run: async ({ operator }, { enabled, disabled }: { enabled?: boolean; disabled?: boolean }) => ({
      items: await operator.symbols.list(enabled || disabled ? { isEnabled: !disabled } : {}),
    }),
    check({ enabled, disabled }) {
      if (enabled && disabled) throw new UsageError('give --enabled or --disabled, not both');
    },
    print({ items }) {
      if (items.length === 0) return;
      printItems(items, {
        SYMBOL: 'symbol',
        ENABLED: ({ isEnabled }) => (isEnabled ? 'yes' : 'no'),
        TICKER: 'ticker',
        DECIMALS: 'decimals',
        'PRICE SCALE': 'priceScale',
        CHANGED: 'updatedAt',
        BY: 'changedBy',
      });
    },
    end({ items }) {
      if (items.length > 0) return EXIT.done;
      report('nothing matched');
      return EXIT.nothing;
    },
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
    options: [
      option(
        '--above <version>',
        'give it a version above this one, for a target that answers 409 and does not say which version it holds',
        parseCount(1, 999_999_999),
      ),
      requestedByOption(),
    ],
    examples: ['symbols push --wait'],
    make: ({ operator }, { above, ...options }: ChangeOptions & { above?: number }) =>
      operator.symbols.push(above === undefined ? {} : { numberOnFrom: above }, options),
  });

  define(symbols, {
    name: 'remove',
    description: 'Forget a disabled symbol. Targets keep their list: it is not on it.',
    args: [['<symbol>', 'its name']],
    options: [requestedByOption()],
    examples: ['symbols remove DOGE'],
    async run({ operator }, { requestedBy }: Requested, symbol: string) {
      await operator.symbols.remove(symbol, { requestedBy });
      return { removed: symbol };
    },
    print: ({ removed }) => `${removed} is removed`,
  });

  define(symbols, {
    name: 'status',
    description: 'Show which target has which version, what failed, and when the next push is.',
    options: [
      option(
        '--behind',
        'with --json: only targets that have not the newest version, or whose last push failed',
      ),
      option('-v, --verbose', 'also show the targets that have the newest version'),
    ],
    examples: ['symbols status', 'symbols status --behind --json'],
    async run(
      { operator },
      { json, behind, verbose }: { json?: boolean; behind?: boolean; verbose?: boolean },
    ) {
      const status = await operator.symbols.status();
      const targets = status.targets.filter(({ isBehind }) => isBehind);
      if (!json)
        printStatus(verbose ? status : { ...status, targets }, targets.length, status.targets.length);
      return behind ? { ...status, targets } : status;
    },
  });

  define(symbols, {
    name: 'crawler',
    description:
      'Switch the crawler of the registry. While the crawler is on, its alarm reconciles, instead of one every 15 minutes.',
    args: [new Argument('<state>', 'what it should be').choices(['on', 'off'])],
    options: [
      durationOption('--interval <duration>', 'time between two crawls, 1h at first'),
      requestedByOption(),
    ],
    examples: ['symbols crawler on --interval 1h', 'symbols crawler off'],
    needs: ['temporal'],
    async run(
      { operator },
      { interval: intervalMs, requestedBy }: { interval?: number } & Requested,
      wanted: 'on' | 'off',
    ) {
      if (
        intervalMs !== undefined &&
        (intervalMs < MIN_CRAWL_INTERVAL_MS || intervalMs > MAX_CRAWL_INTERVAL_MS)
      ) {
        throw new UsageError(`the interval must be at most ${durationOf(MAX_CRAWL_INTERVAL_MS)}`);
      }
      const { crawler, alarm } = await operator.symbols.configureCrawler({
        enabled: wanted === 'on',
        requestedBy,
        ...(intervalMs === undefined ? {} : { intervalMs }),
      });
      return { crawler, alarm };
    },
    print({ crawler, alarm }, _options, [wanted]) {
      const every = crawler.enabled ? `, every ${durationOf(crawler.intervalMs)}` : '';
      printLine(`the crawler is ${wanted}${every}`);
      if (alarm) report(`next push ${new Date(alarm.atMs).toISOString()}`);
    },
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

/** The targets of `status` are those that are shown, the ones with most failures first. */
function printStatus({ targets, version, live, link }: SymbolStatus, behind: number, all: number): void {
  if (targets.length > 0) {
    printItems(
      targets.toSorted((one, other) => other.consecutiveFailures - one.consecutiveFailures),
      {
        TARGET: 'target',
        KIND: 'kind',
        GEO: 'geo',
        VERSION: 'acknowledgedVersion',
        ACKNOWLEDGED: 'acknowledgedAt',
        FAILURES: 'consecutiveFailures',
        'LAST ERROR': 'lastError',
      },
      { flexible: 6 },
    );
  }
  report(`version ${version}: ${all - behind} of ${countOf(all, 'target')} acknowledged (-v shows all)`);
  if (!live) report('no answer from the workflow: shown as the database has it');
  else {
    const { alarm, crawler, isListEmpty } = live;
    if (isListEmpty) report(`no symbol is enabled; targets keep version ${version}`);
    if (alarm) report(`next push ${new Date(alarm.atMs).toISOString()} (${alarm.purpose})`);
    if (crawler.enabled) report(`the crawler is on, every ${durationOf(crawler.intervalMs)}`);
  }
  if (link !== undefined) report(link);
}

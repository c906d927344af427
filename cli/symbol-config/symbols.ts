/** `symbols`: which symbols are enabled, and which target has been told so. */
import type { Command } from 'commander';
import { Argument } from 'commander';
import type { SymbolStatus, ToldChange } from '../../client/symbol-config/symbols.ts';
import { MAX_CRAWL_INTERVAL_MS, MIN_CRAWL_INTERVAL_MS } from '../../workflows/symbol-config/contract.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError, action, helpWith } from '../command.ts';
import type { Requested } from '../options.ts';
import { parseCount, parseDuration, requestedByOption, waitLimitOption } from '../options.ts';
import { countOf, durationOf, printJson, printLine, printTable, report } from '../output.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';

interface ChangeOptions {
  json?: boolean;
  wait?: boolean;
  timeout: number;
}

type RequestedChange = ChangeOptions & Requested;

export function addSymbolCommands(program: Command): void {
  const symbols = program
    .command('symbols')
    .description('Symbols: which are enabled, and which target has been told so');

  symbols
    .command('list')
    .description('List the symbols, by name.')
    .option('--enabled', 'enabled symbols only')
    .option('--disabled', 'disabled symbols only')
    .addHelpText(
      'after',
      helpWith('galaxy-notify symbols list', 'galaxy-notify symbols list --disabled --json'),
    )
    .action(
      action<{ enabled?: boolean; disabled?: boolean }>(({ json, enabled, disabled }) =>
        withSession(['postgres'], async ({ operator }) => {
          if (enabled && disabled) throw new UsageError('give --enabled or --disabled, not both');
          const items = await operator.symbols.list(enabled || disabled ? { isEnabled: !disabled } : {});
          if (json) printJson({ items });
          else if (items.length > 0) {
            printTable(
              ['SYMBOL', 'ENABLED', 'TICKER', 'DECIMALS', 'PRICE SCALE', 'CHANGED', 'BY'],
              items.map(({ symbol, isEnabled, ticker, decimals, priceScale, updatedAt, changedBy }) => [
                symbol,
                isEnabled ? 'yes' : 'no',
                ticker,
                decimals,
                priceScale,
                updatedAt,
                changedBy,
              ]),
            );
          }
          if (items.length === 0) report('nothing matched');
          return items.length === 0 ? EXIT.nothing : EXIT.done;
        }),
      ),
    );

  changing(
    symbols
      .command('enable')
      .addOption(requestedByOption())
      .description(
        'Enable symbols and push the new list to every target. All symbols of a command are one change.',
      )
      .argument('<symbol...>', 'which'),
    'galaxy-notify symbols enable SOL DOGE --wait',
  ).action(
    action<RequestedChange, [string[]]>((options, names) =>
      change(options, ({ operator }) => operator.symbols.enable(names, options.requestedBy)),
    ),
  );

  changing(
    symbols
      .command('disable')
      .addOption(requestedByOption())
      .description(
        'Disable symbols and push the new list to every target. The last one that is enabled cannot be disabled.',
      )
      .argument('<symbol...>', 'which'),
    'galaxy-notify symbols disable DOGE --wait',
  ).action(
    action<RequestedChange, [string[]]>((options, names) =>
      change(options, ({ operator }) => operator.symbols.disable(names, options.requestedBy)),
    ),
  );

  changing(
    symbols
      .command('set')
      .description('Add a symbol, enabled, or change what collectors know about it, and push the new list.')
      .argument('<symbol>', 'its name')
      .requiredOption('--ticker <text>', 'the ticker whose prices it has')
      .requiredOption('--decimals <n>', 'decimals of a quantity, 0 to 30', parseCount(0, 30))
      .requiredOption('--price-scale <n>', 'what a price is multiplied with', parseCount(1, 999_999_999))
      .addOption(requestedByOption()),
    'galaxy-notify symbols set LINK --ticker LINK-PERP --decimals 1 --price-scale 10000',
  ).action(
    action<RequestedChange & { ticker: string; decimals: number; priceScale: number }, [string]>(
      ({ ticker, decimals, priceScale, ...options }, symbol) =>
        change(options, ({ operator }) =>
          operator.symbols.set({ symbol, ticker, decimals, priceScale }, options.requestedBy),
        ),
    ),
  );

  changing(
    symbols
      .command('push')
      .description('Push the current list to every target now, also to targets that have it.')
      .option(
        '--above <version>',
        'give it a version above this one, for a target that answers 409 and does not say which version it holds',
        parseCount(1, 999_999_999),
      )
      .addOption(requestedByOption()),
    'galaxy-notify symbols push --wait',
  ).action(
    action<RequestedChange & { above?: number }>(({ above, ...options }) =>
      change(options, ({ operator }) =>
        operator.symbols.push(above === undefined ? {} : { numberOnFrom: above }, options),
      ),
    ),
  );

  symbols
    .command('remove')
    .description('Forget a disabled symbol. Targets keep their list: it is not on it.')
    .argument('<symbol>', 'its name')
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify symbols remove DOGE'))
    .action(
      action<Requested, [string]>(({ json, requestedBy }, symbol) =>
        withSession(['postgres'], async ({ operator }) => {
          await operator.symbols.remove(symbol, { requestedBy });
          if (json) printJson({ removed: symbol });
          else printLine(`${symbol} is removed`);
        }),
      ),
    );

  symbols
    .command('status')
    .description('Show which target has which version, what failed, and when the next push is.')
    .option('--behind', 'only targets that have not the newest version, or whose last push failed')
    .addHelpText(
      'after',
      helpWith('galaxy-notify symbols status', 'galaxy-notify symbols status --behind --json'),
    )
    .action(
      action<{ behind?: boolean }>(({ json, behind }) =>
        withSession(['postgres'], async ({ operator }) => {
          const status = await operator.symbols.status();
          const shown = behind ? status.targets.filter(({ isBehind }) => isBehind) : status.targets;
          if (json) return printJson({ ...status, targets: shown });
          printStatus({ ...status, targets: shown }, status.targets);
        }),
      ),
    );

  symbols
    .command('crawler')
    .description(
      'Switch the crawler of the registry. While the crawler is on, its alarm reconciles, instead of one every 15 minutes.',
    )
    .addArgument(new Argument('<state>', 'what it should be').choices(['on', 'off']))
    .option('--interval <duration>', 'time between two crawls, 1h at first', parseDuration)
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify symbols crawler on --interval 1h', 'galaxy-notify symbols crawler off'),
    )
    .action(
      action<{ interval?: number; requestedBy: string }, ['on' | 'off']>(
        ({ json, interval, requestedBy }, wanted) =>
          withSession(['temporal'], async ({ operator }) => {
            if (
              interval !== undefined &&
              (interval < MIN_CRAWL_INTERVAL_MS || interval > MAX_CRAWL_INTERVAL_MS)
            ) {
              throw new UsageError(`the interval must be at most ${durationOf(MAX_CRAWL_INTERVAL_MS)}`);
            }
            const { crawler, alarm } = await operator.symbols.configureCrawler({
              enabled: wanted === 'on',
              requestedBy,
              ...(interval === undefined ? {} : { intervalMs: interval }),
            });
            if (json) return printJson({ crawler, alarm });
            const every = crawler.enabled ? `, every ${durationOf(crawler.intervalMs)}` : '';
            printLine(`the crawler is ${wanted}${every}`);
            if (alarm) report(`next push ${new Date(alarm.atMs).toISOString()}`);
          }),
      ),
    );
}

/** Options of a command that changes the list. */
function changing(command: Command, example: string): Command {
  return command
    .option('--wait', 'wait until every target has acknowledged; exit code 1 when some have not')
    .addOption(waitLimitOption('that'))
    .addHelpText('after', helpWith(example));
}

function change(
  { json, wait, timeout }: ChangeOptions,
  make: (session: Session) => Promise<ToldChange>,
): Promise<ExitCode> {
  return withSession(['postgres', 'temporal'], async (session) => {
    const told = await make(session);
    if (!wait) {
      if (json) printJson(told);
      else printLine('the list is being pushed');
      report('which targets have it: galaxy-notify symbols status');
      return EXIT.done;
    }
    const spread = await session.operator.symbols.wait(told, { limitMs: timeout });
    const { isComplete, version, acknowledged, targets, behind } = spread;
    if (json) printJson(spread);
    else printLine(`version ${version}: ${acknowledged} of ${countOf(targets, 'target')} acknowledged`);
    if (isComplete) return EXIT.done;
    if (version === 0) report('no worker has taken the change yet');
    else report(behind.length > 0 ? `behind: ${behind.join(', ')}` : 'the push is still under way');
    return EXIT.failed;
  });
}

/** @param all shown or not. */
function printStatus({ targets, version, live, link }: SymbolStatus, all: SymbolStatus['targets']): void {
  if (targets.length > 0) {
    printTable(
      ['TARGET', 'KIND', 'GEO', 'VERSION', 'ACKNOWLEDGED', 'FAILURES', 'LAST ERROR'],
      targets.map((target) => [
        target.target,
        target.kind,
        target.geo,
        target.acknowledgedVersion,
        target.acknowledgedAt,
        target.consecutiveFailures,
        target.lastError,
      ]),
      { flexible: 6 },
    );
  }
  const behind = all.filter(({ isBehind }) => isBehind).length;
  report(`version ${version}: ${all.length - behind} of ${countOf(all.length, 'target')} acknowledged`);
  if (!live) report('no answer from the workflow: shown as the database has it');
  else {
    const { alarm, crawler, isListEmpty } = live;
    if (isListEmpty) report(`no symbol is enabled; targets keep version ${version}`);
    if (alarm) report(`next push ${new Date(alarm.atMs).toISOString()} (${alarm.purpose})`);
    if (crawler.enabled) report(`the crawler is on, every ${durationOf(crawler.intervalMs)}`);
  }
  if (link !== undefined) report(link);
}

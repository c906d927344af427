/** `replay`: trying dead-lettered routes again. */
import type { Command } from 'commander';
import { NotFoundError, causeOf } from '../../client/errors.ts';
import type { DeadLetterFilter } from '../../client/intent/dead-letters.ts';
import type { BulkReplay, ReplayGroup, ReplayOutcome } from '../../client/intent/replay.ts';
import type { Operator } from '../../client/operator.ts';
import type { BulkOptions } from '../bulk-replay.ts';
import { endBeforeReplay, rateOption, withBulkOptions } from '../bulk-replay.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError, action, helpWith } from '../command.ts';
import { parseEntryId, reasonOption, waitLimitOption, withDeadLetterFilters } from '../options.ts';
import { countOf, printJson, printLine, printTable, report } from '../output.ts';
import { startProgress, untilInterrupted } from '../progress.ts';
import { withSession } from '../session.ts';

type Options = BulkOptions &
  Pick<DeadLetterFilter, 'type' | 'channel' | 'failure' | 'producer' | 'since' | 'until'> & {
    rate: number;
    wait?: boolean;
    timeout: number;
    reason?: string;
  };

export function addReplayCommand(program: Command): void {
  withBulkOptions(withDeadLetterFilters(program.command('replay')), 'routes')
    .summary('Try dead-lettered routes again, one or many')
    .description(
      'Replay dead-lettered routes. Each gets a new budget; its dead letter stays as history. Without a notification id, all routes that match the filters are replayed. A route that is named and waits for its next attempt tries now.',
    )
    .argument('[notification id]', 'its dead-lettered routes only', parseEntryId)
    .argument('[route id]', 'this route only, as dead-letters list shows it')
    .addOption(rateOption())
    .option('--wait', 'wait until the replayed routes are settled; exit code 1 when some died again')
    .addOption(waitLimitOption('that'))
    .addOption(reasonOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify replay 1790000000000-0 email:user:user-1 --wait',
        'galaxy-notify replay --channel email --since 2h --dry-run',
        "galaxy-notify replay --failure mail_stream_publish_failed --since 2h --yes --wait --reason 'INC-42'",
      ),
    )
    .action(
      action<Options, [string | undefined, string | undefined]>((options, notificationId, routeId) => {
        const filter = filterOf(options, notificationId, routeId);
        if (routeId !== undefined && !options.dryRun) return replayOne(notificationId!, routeId, options);
        return replayMany(filter, options);
      }),
    );
}

/** @throws UsageError for a bulk replay of everything, which nobody means, and for filters of a single route. */
function filterOf(options: Options, notificationId?: string, routeId?: string): DeadLetterFilter {
  const { type, channel, failure, producer, since, until } = options;
  const filters = Object.fromEntries(
    Object.entries({ type, channel, failure, producer, since, until }).filter(
      ([, value]) => value !== undefined,
    ),
  );
  const hasFilter = Object.keys(filters).length > 0;
  if (notificationId === undefined && !hasFilter) {
    throw new UsageError('say which: a notification id, or filters; --since 30d for everything of 30 days');
  }
  if (routeId !== undefined && hasFilter) throw new UsageError('a route that is named takes no filters');
  return {
    ...filters,
    ...(notificationId === undefined ? {} : { notificationId }),
    ...(routeId === undefined ? {} : { routeId }),
  };
}

const requestOf = ({ requestedBy, reason }: Options) => ({
  requestedBy,
  ...(reason === undefined ? {} : { reason }),
});

function replayOne(notificationId: string, routeId: string, options: Options): Promise<ExitCode> {
  return withSession(['postgres', 'temporal'], async ({ operator }) => {
    const { startedAt, replayed } = await operator.replays.route(notificationId, routeId, requestOf(options));
    const outcome = options.wait
      ? await operator.replays.wait([replayed], startedAt, { limitMs: options.timeout })
      : undefined;
    if (options.json) printJson({ replayed: [replayed], ...(outcome ? { outcome } : {}) });
    else if (outcome) printLine(outcomeLine(outcome));
    else {
      printLine(
        replayed.result === 'replayed'
          ? `${routeId} of ${notificationId} is tried again; see notifications show ${notificationId}`
          : `${routeId} of ${notificationId} was published already, nothing was sent`,
      );
    }
    return outcome ? codeOf(outcome) : EXIT.done;
  });
}

function replayMany(filter: DeadLetterFilter, options: Options): Promise<ExitCode> {
  return withSession(options.dryRun ? ['postgres'] : ['postgres', 'temporal'], async ({ operator }) => {
    const groups = await operator.replays.preview(filter);
    const matching = groups.reduce((total, { routes }) => total + routes, 0);
    const total = Math.min(matching, options.limit ?? Infinity);
    if (options.json && options.dryRun) printJson({ matching, wouldReplay: total, groups });
    if (matching === 0) throw new NotFoundError('no dead-lettered route matches');
    if (!options.json) printGroups(groups);
    // The routes of one notification are named; only a bulk replay reaches what its operator has not looked at.
    const isNamed = filter.notificationId !== undefined;
    const end = await endBeforeReplay(
      { what: 'route', matching, total },
      isNamed ? { ...options, yes: true } : options,
    );
    if (end !== undefined) return end;
    return runBulk(operator, filter, total, options);
  });
}

async function runBulk(
  operator: Operator,
  filter: DeadLetterFilter,
  total: number,
  options: Options,
): Promise<ExitCode> {
  const interrupt = untilInterrupted();
  try {
    const progress = startProgress(total, 'routes replayed');
    let done = 0;
    const run = await operator.replays.bulk(filter, {
      ...requestOf(options),
      ratePerSecond: options.rate,
      limit: total,
      signal: interrupt.signal,
      onReplayed: () => progress.update((done += 1)),
    });
    progress.end();
    const outcome =
      options.wait && !run.failure && !run.wasStopped
        ? await waitForRun(operator, run, options.timeout, interrupt.signal)
        : undefined;
    const { replayed, wasStopped, failure } = run;
    if (options.json) {
      printJson({ replayed, wasStopped, ...(outcome ? { outcome } : {}) });
    } else {
      const already = replayed.filter(({ result }) => result === 'already_published').length;
      printLine(
        `${countOf(replayed.length - already, 'route')} replayed${already > 0 ? `, ${already} already published` : ''}`,
      );
      if (outcome) printLine(outcomeLine(outcome));
    }
    if (failure) report(`stopped by: ${causeOf(failure)}`);
    if (failure || wasStopped) {
      report(`${replayed.length} of ${total} done; the same command continues with the rest`);
      return failure ? EXIT.failed : EXIT.interrupted;
    }
    if (interrupt.signal.aborted) return EXIT.interrupted;
    return outcome ? codeOf(outcome) : EXIT.done;
  } finally {
    interrupt.release();
  }
}

async function waitForRun(
  operator: Operator,
  { replayed, startedAt }: BulkReplay,
  limitMs: number,
  signal: AbortSignal,
): Promise<ReplayOutcome> {
  const progress = startProgress(replayed.length, 'routes settled');
  const onProgress = ({ open, diedAgain }: ReplayOutcome) =>
    progress.update(replayed.length - open, diedAgain > 0 ? `${diedAgain} died again` : '');
  try {
    return await operator.replays.wait(replayed, startedAt, { limitMs, signal, onProgress });
  } finally {
    progress.end();
  }
}

function printGroups(groups: ReplayGroup[]): void {
  printTable(
    ['ROUTES', 'TYPE', 'CHANNEL', 'FAILURE', 'OLDEST', 'NEWEST'],
    groups.map((group) => [
      group.routes,
      group.type,
      group.channel,
      group.failure,
      group.oldest,
      group.newest,
    ]),
  );
}

function outcomeLine({ published, skipped, diedAgain, open, gone }: ReplayOutcome): string {
  const parts = [`${published} published`, `${diedAgain} died again`];
  if (skipped > 0) parts.push(`${skipped} skipped`);
  if (gone > 0) parts.push(`${gone} removed by retention`);
  if (open > 0) parts.push(`${open} not settled in time (is the channel paused? see channels list)`);
  return parts.join(', ');
}

const codeOf = ({ diedAgain, open }: ReplayOutcome): ExitCode =>
  diedAgain > 0 || open > 0 ? EXIT.failed : EXIT.done;

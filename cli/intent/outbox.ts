/** `outbox`: notification intents in the database of a producer, and the relay that brings them to the service. */
import type { Command } from 'commander';
import { Argument, Option } from 'commander';
import type { StopSignal } from '../../api/interrupts.ts';
import { NothingToDoError } from '../../client/errors.ts';
import type { OutboxLog, OutboxState } from '../../client/outbox.ts';
import {
  OUTBOX_STATES,
  listOutbox,
  outboxStatus,
  readOutboxSql,
  relayOnce,
  republish,
  startOutboxRelay,
} from '../../client/outbox.ts';
import { COUNTED_AT_MOST, RELAY_NAME } from '../../client/intent/outbox-rows.ts';
import type { ExitCode, GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, helpWith, showPage } from '../command.ts';
import { onStop } from '../invocation.ts';
import { limitOption, parseCount, parseDuration, parseTime } from '../options.ts';
import { countOf, durationOf, printFields, printJson, printLine, printTable, report } from '../output.ts';
import { withOutboxDatabase } from '../session.ts';

const WHERE = `
The database is that of NOTIFICATION_OUTBOX_POSTGRES_DSN, or the one of a running npm start.
`;
const OPERATOR_NAME = 'galaxy-notify outbox';
/** Between two lines about what a relay has done, when it has done something, ms. */
const LINE_EVERY_MS = 10_000;

export function addOutboxCommands(program: Command): void {
  const outbox = program
    .command('outbox')
    .description("Intents in a producer's database, and the relay that publishes them");
  addInstallCommands(outbox);
  addRelayCommand(outbox);
  addStatusCommand(outbox);
  addListCommand(outbox);
  addRepublishCommand(outbox);
}

function addInstallCommands(outbox: Command): void {
  outbox
    .command('sql')
    .description('Print the SQL that makes the outbox, or brings it up to date. Needs no server.')
    .addHelpText('after', helpWith('galaxy-notify outbox sql | psql "$SHOP_DSN"'))
    .action(action(async () => printLine((await readOutboxSql()).trimEnd())));

  outbox
    .command('install')
    .description(
      "Make the outbox in a producer's database, or bring it up to date; running it again is harmless.",
    )
    .addHelpText('after', WHERE + helpWith('galaxy-notify outbox install'))
    .action(
      action<GlobalOptions>(({ json }) =>
        withOutboxDatabase(OPERATOR_NAME, async ({ db }) => {
          await db.query(await readOutboxSql());
          const status = await outboxStatus(db);
          if (json) printJson(status);
          else printLine(`outbox ${status.outboxId} is ready: SELECT notification_outbox.publish(…)`);
        }),
      ),
    );
}

interface RelayOptions extends GlobalOptions {
  once?: boolean;
  poll: number;
  batchRows: number;
  batchBytes: number;
  keep: number;
  keepSetAside: number;
  keyLifetime: number;
}

function addRelayCommand(outbox: Command): void {
  const hours = (count: number) => count * 3_600_000;
  const duration = (flags: string, text: string, byDefault: number, shown: string) =>
    new Option(flags, text).argParser(parseDuration).default(byDefault, shown);
  outbox
    .command('relay')
    .description(
      'Publish what producers write into the outbox, and keep it until the service has it. Runs until Ctrl-C or SIGTERM; several may run.',
    )
    .option('--once', 'publish what is there, and end')
    .addOption(
      duration(
        '--poll <duration>',
        'look for rows so often when PostgreSQL tells of none; 1s at most',
        1_000,
        '1s',
      ),
    )
    .option('--batch-rows <n>', 'rows of one batch at most', parseCount(1, 10_000), 500)
    .option(
      '--batch-bytes <n>',
      'no further row in a batch that has so many bytes',
      parseCount(1, 16 << 20),
      1 << 20,
    )
    .addOption(
      duration('--keep <duration>', 'how long rows stay that the service has passed', hours(24), '1d'),
    )
    .addOption(
      duration(
        '--keep-set-aside <duration>',
        'how long rows stay that were set aside',
        hours(90 * 24),
        '90d',
      ),
    )
    .addOption(
      duration(
        '--key-lifetime <duration>',
        'less than NOTIFICATION_IDEMPOTENCY_TTL: what Redis loses later is set aside, not published again',
        hours(6 * 24),
        '6d',
      ),
    )
    .addHelpText(
      'after',
      `${WHERE}Redis is that of the service. Lines about what is done go to standard error, with --json as JSON.\n${helpWith(
        'galaxy-notify outbox relay',
        'galaxy-notify outbox relay --once --json',
      )}`,
    )
    .action(action<RelayOptions>((options) => runRelay(options)));
}

const runRelay = (options: RelayOptions) =>
  withOutboxDatabase(RELAY_NAME, async ({ db, config, openRedis }): Promise<ExitCode> => {
    const redis = await openRedis();
    const log = logOf(options.json);
    const settings = {
      ...{ db, redis, log, stream: config.values.NOTIFICATION_INTENTS_STREAM },
      pollMs: options.poll,
      batch: { rows: options.batchRows, bytes: options.batchBytes },
      keepPassedMs: options.keep,
      keepSetAsideMs: options.keepSetAside,
      keyLifetimeMs: options.keyLifetime,
    };
    try {
      if (options.once) {
        const counts = await relayOnce(settings);
        if (options.json) printJson(counts);
        else printLine(`${countOf(counts.published, 'intent')} published, ${counts.setAside} set aside`);
        return counts.setAside > 0 ? EXIT.failed : EXIT.done;
      }
      const relay = await startOutboxRelay(settings);
      log.info({ stream: settings.stream }, 'outbox relay started');
      const signal = await untilStopped(log, relay.counts);
      await relay.stop();
      log.info({ ...relay.counts }, 'outbox relay stopped');
      return signal === 'SIGINT' ? EXIT.interrupted : EXIT.done;
    } finally {
      redis.disconnect();
    }
  });

/** Lines for people, or with --json for programs. */
function logOf(json = false): OutboxLog {
  const line = (level: 'info' | 'warn') => (fields: object, msg: string) => {
    const time = new Date().toISOString();
    if (json) return report(JSON.stringify({ level, time, msg, ...fields }));
    const details = Object.entries(fields).map(([name, value]) => `${name}=${String(value)}`);
    report([time, msg, ...details].join(' '));
  };
  return { info: line('info'), warn: line('warn') };
}

/** Logs the counts whenever they have changed. @returns the first request to end the run. */
function untilStopped(log: OutboxLog, counts: object): Promise<StopSignal> {
  let logged = '';
  const timer = setInterval(() => {
    const text = JSON.stringify(counts);
    if (text !== logged) log.info({ ...counts }, 'outbox relay');
    logged = text;
  }, LINE_EVERY_MS);
  return new Promise<StopSignal>((resolve) => {
    onStop((signal) => {
      clearInterval(timer);
      resolve(signal);
    });
  });
}

const stateArgument = () => new Option('--state <state>', 'rows in this state').choices(OUTBOX_STATES);

function addStatusCommand(outbox: Command): void {
  outbox
    .command('status')
    .description(
      'Show how many rows wait, and for what; exit code 1 when some are set aside or no relay is connected.',
    )
    .addHelpText('after', WHERE + helpWith('galaxy-notify outbox status --json'))
    .action(
      action<GlobalOptions>(({ json }) =>
        withOutboxDatabase(OPERATOR_NAME, async ({ db }): Promise<ExitCode> => {
          const status = await outboxStatus(db);
          const { counts, relays } = status;
          const count = (state: OutboxState) =>
            counts[state] >= COUNTED_AT_MOST ? `${COUNTED_AT_MOST} or more` : String(counts[state]);
          const oldest = (state: OutboxState, ms: number) =>
            counts[state] === 0 ? count(state) : `${count(state)}, the oldest since ${durationOf(ms)}`;
          if (json) printJson(status);
          else {
            printFields([
              ['outbox', status.outboxId],
              ['stream', status.stream ?? 'nothing was published yet'],
              ['pending', oldest('pending', status.oldestPendingMs)],
              ['published', oldest('published', status.oldestPublishedMs)],
              ['passed', count('passed')],
              ['set aside', count('set_aside')],
              ['relays', relays ?? 'not to be seen through a pooler'],
            ]);
          }
          if (relays === 0) report('no relay is connected to this database: galaxy-notify outbox relay');
          if (counts.set_aside > 0) report('see galaxy-notify outbox list --state set_aside');
          return relays === 0 || counts.set_aside > 0 ? EXIT.failed : EXIT.done;
        }),
      ),
    );
}

function addListCommand(outbox: Command): void {
  outbox
    .command('list')
    .description('List rows of the outbox, newest first.')
    .addOption(stateArgument())
    .addOption(limitOption())
    .addHelpText('after', WHERE + helpWith('galaxy-notify outbox list --state set_aside'))
    .action(
      action<GlobalOptions & { state?: OutboxState; limit: number }>((options) =>
        withOutboxDatabase(OPERATOR_NAME, async ({ db }) =>
          showPage(await listOutbox(db, options), options, (items) =>
            printTable(
              ['ROW', 'WRITTEN', 'STATE', 'TYPE', 'KEY', 'ENTRY OR PROBLEM'],
              items.map((item) => [
                item.id,
                item.createdAt,
                item.state,
                item.type ?? undefined,
                item.idempotencyKey ?? undefined,
                item.problemCode === null
                  ? (item.entryId ?? undefined)
                  : `${item.problemCode}: ${item.problem}`,
              ]),
              { flexible: 5 },
            ),
          ),
        ),
      ),
    );
}

interface RepublishOptions extends GlobalOptions {
  state?: OutboxState;
  since?: Date;
}

function addRepublishCommand(outbox: Command): void {
  outbox
    .command('republish')
    .description(
      'Have rows published again: some by their number, those in a state, or those written since a time. The service drops what it has already by the key.',
    )
    .addArgument(new Argument('[rows...]', 'numbers of rows, as outbox list has them'))
    .addOption(stateArgument())
    .option('--since <time>', 'rows written at or after: 1h, 7d or an ISO time', parseTime)
    .addHelpText(
      'after',
      WHERE +
        helpWith(
          'galaxy-notify outbox republish 17 18',
          'galaxy-notify outbox republish --state set_aside --since 1d',
        ),
    )
    .action(
      action<RepublishOptions, [string[]]>(async ({ json, state, since }, ids) => {
        const wrong = ids.find((id) => !/^[0-9]{1,18}$/.test(id));
        if (wrong !== undefined) throw new UsageError(`${wrong} is no number of a row`);
        if (ids.length === 0 && state === undefined && since === undefined) {
          throw new UsageError('name rows, or give --state or --since');
        }
        return withOutboxDatabase(OPERATOR_NAME, async ({ db }) => {
          const republished = await republish(db, {
            ...(ids.length === 0 ? {} : { ids }),
            ...(state === undefined ? {} : { state }),
            ...(since === undefined ? {} : { createdSince: since }),
          });
          if (republished === 0) throw new NothingToDoError('no such row, or it is pending already');
          if (json) printJson({ republished });
          else printLine(`${countOf(republished, 'row')} will be published again`);
        });
      }),
    );
}

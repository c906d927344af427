/** `outbox`: notification intents in the database of a producer, and the relay that brings them to the service. */
import type { Command } from 'commander';
import type { StopSignal } from '../../api/interrupts.ts';
import type { OutboxLog } from '../../client/outbox.ts';
import { outboxStatus, readOutboxSql, startOutboxRelay } from '../../client/outbox.ts';
import type { ExitCode, GlobalOptions } from '../command.ts';
import { EXIT, action } from '../command.ts';
import { defineLocal, form } from '../definition.ts';
import { onStop } from '../invocation.ts';
import { durationOption } from '../options.ts';
import { printView, report } from '../output.ts';
import { withOutboxDatabase } from '../session.ts';

const WHERE = `
The database is that of NOTIFICATION_OUTBOX_POSTGRES_DSN, or the one of a running npm start.
`;
/** A relay publishes a row within a second, unless Redis is away. */
const LATE_MS = 60_000;
/** Between two lines about what a relay has done, when it has done something, ms. */
const LINE_EVERY_MS = 10_000;

export function addTo(outbox: Command): void {
  defineLocal(outbox, {
    name: 'sql',
    description: 'Print the SQL that makes the outbox, or brings it up to date. Needs no server.',
    examples: ['outbox sql | psql "$SHOP_DSN"'],
    run: readOutboxSql,
    print: (sql) => sql.trimEnd(),
  });

  addRelayCommand(outbox);

  defineLocal(outbox, {
    name: 'status',
    description:
      'Show how many rows wait, and for what; exit code 1 when some are set aside, or one has waited for a minute to be published.',
    above: WHERE,
    examples: ['outbox status --json'],
    run: () => withOutboxDatabase(({ db }) => outboxStatus(db)),
    print: ({ counts, ...status }) => printView({ ...status, ...counts }),
    end({ oldestPendingMs, counts }) {
      const isLate = oldestPendingMs > LATE_MS;
      if (isLate) report('no relay publishes: galaxy-notify outbox relay');
      if (counts.set_aside > 0) {
        report(
          "what is wrong: SELECT id, problem_code, problem FROM notification_outbox.intents WHERE state = 'set_aside'",
        );
      }
      return isLate || counts.set_aside > 0 ? EXIT.failed : EXIT.done;
    },
  });
}

interface RelayOptions extends GlobalOptions {
  keep: number;
  keepSetAside: number;
  keyLifetime: number;
}

function addRelayCommand(outbox: Command): void {
  form(outbox, {
    name: 'relay',
    description:
      'Publish what producers write into the outbox, and keep it until the service has it. Runs until Ctrl-C or SIGTERM; several may run.',
    options: [
      durationOption('--keep <duration>', 'how long rows stay that the service has passed', '1d'),
      durationOption('--keep-set-aside <duration>', 'how long rows stay that were set aside', '90d'),
      durationOption(
        '--key-lifetime <duration>',
        'less than NOTIFICATION_IDEMPOTENCY_TTL: what Redis loses later is set aside, not published again',
        '6d',
      ),
    ],
    above: `${WHERE}Redis is that of the service. Lines about what is done go to standard error, with --json as JSON.\n`,
    examples: ['outbox relay', 'outbox relay --json --keep 7d'],
  }).action(action<RelayOptions>((options) => runRelay(options)));
}

const runRelay = (options: RelayOptions) =>
  withOutboxDatabase(async ({ db, config, openRedis }): Promise<ExitCode> => {
    const redis = await openRedis();
    const log = logOf(options.json);
    const settings = {
      ...{ db, redis, log, stream: config.values.NOTIFICATION_INTENTS_STREAM, catalog: config.catalog },
      keepPassedMs: options.keep,
      keepSetAsideMs: options.keepSetAside,
      keyLifetimeMs: options.keyLifetime,
    };
    try {
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

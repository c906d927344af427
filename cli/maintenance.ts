/** Work on an installation: `keys`, rotation of the keys of encryption; `recover`, after a store was put back to an earlier state. */
import type { Command } from 'commander';
import type { ConfiguredKeys } from '../client/keys.ts';
import type { Config } from '../config/load.ts';
import { sealingKeysOf } from '../config/subscription.ts';
import type { RecoveryProgress } from '../workflows/recovery-contract.ts';
import { EXIT, requireYes, untilInterrupted } from './command.ts';
import { define, option } from './definition.ts';
import type { Requested } from './options.ts';
import { durationOption, requestedByOption, waitLimitOption, yesOption } from './options.ts';
import { countOf, printHeading, printItems, printView, report } from './output.ts';
import type { Session } from './session.ts';

export function addKeys(keys: Command): void {
  define(keys, {
    name: 'status',
    description:
      'Count what is sealed with each key of NOTIFICATION_PAYLOAD_KEYS and NOTIFICATION_SUBSCRIPTION_KEYS. Reads the history of every workflow that runs.',
    options: [option('--retained', 'also histories of workflows that have ended, which may be many')],
    examples: ['keys status', 'keys status --retained --json'],
    needs: ['postgres', 'temporal'],
    run: ({ operator, config }, { retained: withRetained = false }: { retained?: boolean }) =>
      operator.keys.status(keysOf(config), { withRetained }),
    print({ payload, subscription }) {
      printHeading('Keys of payloads');
      printItems(payload, ['key', 'use', 'open', 'retained']);
      printHeading('Keys of subscriptions');
      printItems(subscription, ['key', 'use', 'values']);
    },
    end({ payload, subscription }) {
      const missing = [...payload, ...subscription].filter(({ use }) => use === 'missing');
      if (missing.length === 0) return EXIT.done;
      report(`not configured, and still needed: ${[...new Set(missing.map(({ key }) => key))].join(', ')}`);
      return EXIT.failed;
    },
  });

  define(keys, {
    name: 'renew',
    description:
      'Seal what stays with the first key: long-lived workflows go on in new runs, and rows are sealed again. Other workflows end by themselves. It may be repeated.',
    options: [waitLimitOption('the new runs'), requestedByOption()],
    examples: ['keys renew'],
    needs: ['postgres', 'temporal'],
    run: ({ operator, config }, { timeout, requestedBy }: Requested & { timeout: number }) =>
      untilInterrupted((signal) =>
        operator.keys.renew(keysOf(config), { limitMs: timeout, signal, requestedBy }),
      ),
    print: ({ workflows, values }) =>
      `${countOf(workflows, 'long-lived workflow')} and ${countOf(values, 'value')} in rows sealed with the first key`,
    end({ waiting, unreadable }) {
      if (unreadable > 0)
        report(`${countOf(unreadable, 'value')} open with no key that is configured: keys status`);
      if (waiting.length > 0)
        report(`still to go on in a new run: ${waiting.slice(0, 10).join(', ')}; is a process running?`);
      return waiting.length > 0 || unreadable > 0 ? EXIT.failed : EXIT.done;
    },
  });
}

const keysOf = (config: Config): ConfiguredKeys => ({
  payload: config.values.NOTIFICATION_PAYLOAD_KEYS ?? [],
  subscription: sealingKeysOf(config),
});

// --- recover -----------------------------------------------------------------------------------------------------------

const FOLLOW_EVERY_MS = 1_000;

interface RecoverOptions {
  since: number;
  dryRun?: boolean;
  yes?: boolean;
  detach?: boolean;
  timeout: number;
  requestedBy: string;
}

export function addRecover(command: Command): void {
  define(command, {
    description:
      'After Redis, PostgreSQL or Temporal was put back to an earlier state: read intents again, hand off again what outbound streams have lost, take up work without a worker, push the symbols to all targets, and take inputs of accounts again. A workflow does it; nothing is delivered under another id than before.',
    options: [
      durationOption(
        '--since <duration>',
        'how long ago the state is that the store was put back to; more is harmless, and takes longer',
        '1h',
      ),
      option('--dry-run', 'show what would be done, and do nothing'),
      yesOption(),
      option('--detach', 'start it, and do not wait for its end'),
      ...[requestedByOption(), waitLimitOption('its end', '30m')],
    ],
    examples: ['recover --dry-run', 'recover --since 2h --yes'],
    needs: ['redis', 'postgres', 'temporal'],
    run: async ({ operator, config }, options: RecoverOptions) =>
      options.dryRun
        ? { plan: await operator.recovery.plan({ sinceMs: options.since }) }
        : recover(operator.recovery, config, options),
    check(options) {
      if (!options.dryRun) requireYes('this would start a recovery', options);
    },
    print(made) {
      if ('plan' in made) {
        printHeading('A recovery would read again, look for and take up');
        printView(made.plan);
      } else if ('progress' in made && made.isDone && made.progress) printView(made.progress);
    },
    end(made) {
      if (!('progress' in made) || made.isDone) return EXIT.done;
      report('not done yet: it goes on, and the same command follows it');
      return EXIT.failed;
    },
  });
}

/** Starts it, and follows it unless it is not to be waited for. */
async function recover(
  recovery: Session['operator']['recovery'],
  { values, roles }: Config,
  { since: sinceMs, detach, timeout: limitMs, requestedBy }: RecoverOptions,
) {
  const outbound = new Set([
    values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM,
    values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM,
  ]);
  const also = roles.filter((role) => role !== 'intent');
  const started = await recovery.start({ sinceMs, outbound: [...outbound], also, requestedBy });
  report(started.isNew ? 'the recovery is started' : 'a recovery runs already, this follows it');
  if (started.link !== undefined) report(started.link);
  if (detach) return started;
  let last = '';
  return untilInterrupted((signal) =>
    recovery.follow({
      ...{ limitMs, everyMs: FOLLOW_EVERY_MS, signal },
      onProgress({ progress, isDone }) {
        if (!progress || isDone) return;
        const line = lineOf(progress);
        if (line !== last) report(line);
        last = line;
      },
    }),
  );
}

function lineOf({ step, restored, takenUp: { published = 0, restarted = 0 } }: RecoveryProgress): string {
  const repaired = restored.reduce((sum, stream) => sum + stream.repaired, 0);
  return `${step}: ${repaired} handed off again, ${countOf(published + restarted, 'route')} taken up`;
}

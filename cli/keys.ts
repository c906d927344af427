/** `keys`: what is still sealed with which key of encryption, and how an old one gets out of use. */
import type { Command } from 'commander';
import type { ConfiguredKeys, KeyStatus, Renewal } from '../client/keys.ts';
import type { Config } from '../config/load.ts';
import { sealingKeysOf } from '../config/subscription.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, action, requireYes } from './command.ts';
import { define, form, option } from './definition.ts';
import type { Requested } from './options.ts';
import { requestedByOption, waitLimitOption, yesOption } from './options.ts';
import { countOf, printHeading, printItems, printJson, printLine, report } from './output.ts';
import { untilInterrupted, withProgress } from './progress.ts';
import type { Session } from './session.ts';
import { withSession } from './session.ts';

const PROGRESS_EVERY = 500;

export function addTo(keys: Command): void {
  define(keys, {
    name: 'status',
    description:
      'Count what is sealed with each key of NOTIFICATION_PAYLOAD_KEYS and NOTIFICATION_SUBSCRIPTION_KEYS. Reads the history of every workflow that runs.',
    options: [option('--retained', 'also histories of workflows that have ended, which may be many')],
    examples: ['keys status', 'keys status --retained --json'],
    needs: ['postgres', 'temporal'],
    run: ({ operator, config }, { retained: withRetained = false }: { retained?: boolean }) =>
      operator.keys.status(keysOf(config), {
        withRetained,
        onRead: (histories) => {
          if (histories % PROGRESS_EVERY === 0) report(`${histories} histories read`);
        },
      }),
    print: printStatus,
    end({ payload, subscription }) {
      const missing = [...payload, ...subscription].filter(({ use }) => use === 'missing');
      if (missing.length === 0) return EXIT.done;
      report(`not configured, and still needed: ${[...new Set(missing.map(({ key }) => key))].join(', ')}`);
      return EXIT.failed;
    },
  });

  form(keys, {
    name: 'renew',
    description:
      'Seal what stays with the first key: long-lived workflows go on in new runs, and rows are sealed again. Other workflows end by themselves.',
    options: [
      option('--dry-run', 'show how much it is, and do nothing'),
      ...[yesOption(), waitLimitOption('the new runs'), requestedByOption()],
    ],
    examples: ['keys renew --dry-run', 'keys renew --yes'],
  }).action(
    action<RenewOptions>((options) =>
      withSession(['postgres', 'temporal'], ({ operator, config }) =>
        renew(operator.keys, keysOf(config), options),
      ),
    ),
  );
}

const keysOf = (config: Config): ConfiguredKeys => ({
  payload: config.values.NOTIFICATION_PAYLOAD_KEYS ?? [],
  subscription: sealingKeysOf(config),
});

function printStatus({ payload, subscription }: KeyStatus): void {
  printHeading('Keys of payloads');
  printItems(payload, ['key', 'use', 'open', 'retained']);
  printHeading('Keys of subscriptions');
  printItems(subscription, ['key', 'use', 'values']);
}

interface RenewOptions extends GlobalOptions, Requested {
  dryRun?: boolean;
  yes?: boolean;
  timeout: number;
}

async function renew(
  keys: Session['operator']['keys'],
  configured: ConfiguredKeys,
  { dryRun, yes, timeout, json, requestedBy }: RenewOptions,
): Promise<ExitCode> {
  const found = await keys.countRenewable(configured);
  if (dryRun) {
    if (json) printJson({ wouldRenew: found });
    report(`${wordsOf(found)} would be sealed with the first key; nothing was done`);
    return EXIT.done;
  }
  requireYes(`this would seal ${wordsOf(found)} with the first key`, { yes });
  return untilInterrupted(async (signal) => {
    const renewed = await withProgress(found.workflows, 'workflows went on in a new run', (update) =>
      keys.renew(configured, {
        ...{ limitMs: timeout, signal, requestedBy },
        onWaiting: (left) => update(Math.max(0, found.workflows - left)),
      }),
    );
    if (json) printJson({ renewed });
    else printLine(`${wordsOf(renewed)} sealed with the first key`);
    const { waiting, unreadable } = renewed;
    if (unreadable > 0)
      report(`${countOf(unreadable, 'value')} open with no key that is configured: keys status`);
    if (waiting.length > 0)
      report(`still to go on in a new run: ${waiting.slice(0, 10).join(', ')}; is a process running?`);
    if (signal.aborted) return EXIT.interrupted;
    return waiting.length > 0 || unreadable > 0 ? EXIT.failed : EXIT.done;
  });
}

const wordsOf = ({ workflows, values }: Renewal): string =>
  `${countOf(workflows, 'long-lived workflow')} and ${countOf(values, 'value')} in rows`;

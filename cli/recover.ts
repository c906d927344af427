/** `recover`: makes good what a store has forgotten that was put back to an earlier state. */
import type { Command } from 'commander';
import type { Config } from '../config/load.ts';
import type { RecoveryProgress } from '../workflows/recovery-contract.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, action, requireYes } from './command.ts';
import { form, option } from './definition.ts';
import { durationOption, requestedByOption, waitLimitOption, yesOption } from './options.ts';
import { countOf, durationOf, printHeading, printJson, printView, report } from './output.ts';
import { untilInterrupted } from './progress.ts';
import type { Session } from './session.ts';
import { withSession } from './session.ts';

const FOLLOW_EVERY_MS = 1_000;

interface RecoverOptions extends GlobalOptions {
  since: number;
  dryRun?: boolean;
  yes?: boolean;
  detach?: boolean;
  timeout: number;
  requestedBy: string;
}

export function addTo(command: Command): void {
  form(command, {
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
  }).action(
    action<RecoverOptions>((options) =>
      withSession(['redis', 'postgres', 'temporal'], ({ operator, config }) =>
        recover(operator, config, options),
      ),
    ),
  );
}

async function recover(
  { recovery }: Session['operator'],
  config: Config,
  { since, dryRun, yes, detach, timeout, requestedBy, json }: RecoverOptions,
): Promise<ExitCode> {
  const { values, roles } = config;
  const outbound = [
    ...new Set([
      values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM,
      values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM,
    ]),
  ];
  const request = {
    ...{ sinceMs: since, outbound, requestedBy },
    also: roles.filter((role) => role !== 'intent'),
  };
  if (dryRun || !yes) {
    const plan = await recovery.plan(request);
    if (json) printJson({ plan });
    else {
      printHeading('A recovery would read again, look for and take up');
      printView(plan);
    }
    if (dryRun) return EXIT.done;
    requireYes('nothing was done', { yes });
  }
  const { isNew, link } = await recovery.start(request);
  report(isNew ? 'the recovery is started' : 'a recovery runs already, this follows it');
  if (link !== undefined) report(link);
  if (detach) return EXIT.done;

  return untilInterrupted(async (signal) => {
    let last = '';
    const run = await recovery.follow({
      ...{ limitMs: timeout, everyMs: FOLLOW_EVERY_MS, signal },
      onProgress(progress) {
        const line = lineOf(progress);
        if (line !== last) report(line);
        last = line;
      },
    });
    if (json) printJson(run);
    else if (run.isDone && run.progress) printView(run.progress);
    if (run.isDone) return EXIT.done;
    if (signal.aborted) return EXIT.interrupted;
    report(`not done within ${durationOf(timeout)}; it goes on, and the same command follows it`);
    return EXIT.failed;
  });
}

function lineOf({ step, restored, takenUp: { published = 0, restarted = 0 } }: RecoveryProgress): string {
  const repaired = restored.reduce((sum, stream) => sum + stream.repaired, 0);
  return `${step}: ${repaired} handed off again, ${countOf(published + restarted, 'route')} taken up`;
}

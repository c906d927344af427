/** `dead-letters` and `replay`: routes that spent their budget, and trying them again. */
import type { Command } from 'commander';
import type { DeadLetter } from '../../client/intent/intents.ts';
import type { ChosenOperation, ReplayResult } from '../../client/operations.ts';
import type { Operator } from '../../client/operator.ts';
import { follow } from '../../client/temporal.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, withProgress } from '../command.ts';
import { list, option } from '../definition.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { addOperation } from '../operations.ts';
import { deadLetterFilters, parseEntryId, waitLimitOption } from '../options.ts';
import { printItems, printJson, printLine, report } from '../output.ts';
import type { Session } from '../session.ts';

export function addDeadLetters(deadLetters: Command): void {
  list(deadLetters, {
    description: 'List dead-lettered routes, newest first.',
    filters: {
      ...deadLetterFilters(),
      all: option(
        '--all',
        'also routes that were replayed since; failure and time are those of their first death',
      ),
    },
    examples: [
      'dead-letters list --channel email --since 1h',
      'dead-letters list --all --limit 1000 --json',
      'replay --channel email --since 1h --dry-run',
    ],
    read: ({ operator }: Session) => operator.deadLetters.list,
    print: printLetters,
  });
}

function printLetters(items: DeadLetter[]): void {
  printItems(
    items,
    ['diedAt', 'notificationId', 'routeId', 'type', 'failure', 'status', 'replays', 'message'],
    2,
  );
  const dead = items.find(({ status }) => status === 'dead_letter');
  if (dead === undefined) return;
  report(`to try one again, when its cause is gone: galaxy-notify replay ${dead.notificationId}`);
  report(`to try all of a cause again: galaxy-notify replay --failure ${dead.failure} --since 7d --dry-run`);
}

interface ReplayOptions extends OperationCommandOptions {
  wait?: boolean;
  timeout: number;
}

export function addReplay(command: Command): void {
  addOperation(command, {
    kind: 'replay',
    description:
      'Replay dead-lettered routes. Each gets a new budget; its dead letter stays as history. One that has expired meanwhile is not sent. Without a notification id, all routes that match the filters are replayed.',
    named: {
      notificationId: ['[notification id]', 'its dead-lettered routes only', parseEntryId],
      routeId: ['[route id]', 'this route only, as dead-letters list or the Web UI shows it'],
    },
    filters: deadLetterFilters(),
    options: [
      option('--wait', 'wait until the replayed routes are settled; exit code 1 when some died again'),
      waitLimitOption('that'),
    ],
    examples: [
      'replay 1790000000000-0 email:user:user-1 --wait',
      'replay --channel email --since 2h --dry-run',
      "replay --failure mail_stream_publish_failed --since 2h --yes --wait --reason 'INC-42'",
    ],
    ...{ what: 'route', verb: 'replay' },
    columns: ['routes', 'expired', 'type', 'channel', 'failure', 'oldest', 'newest'],
    finish: ({ wait, timeout, json }: ReplayOptions) =>
      wait
        ? async (operator, begun, signal) => {
            const outcome = await waitForOutcome(operator, begun, timeout, signal);
            if (json) printJson({ operationId: begun.operationId, outcome });
            else printLine(outcomeLine(outcome));
            return codeOf(outcome);
          }
        : undefined,
  });
}

/** Waits until the routes are settled that the operation has replayed. */
async function waitForOutcome(
  operator: Operator,
  { operationId, total }: ChosenOperation,
  limitMs: number,
  signal: AbortSignal,
): Promise<ReplayResult> {
  return withProgress(total, 'routes settled', (update) =>
    follow(
      () => operator.operations.outcome(operationId),
      ({ open }) => open === 0,
      {
        ...{ limitMs, signal, everyMs: 500 },
        onProgress: ({ open, diedAgain }) =>
          update(total - open, diedAgain > 0 ? `${diedAgain} died again` : ''),
      },
    ),
  );
}

function outcomeLine({ published, skipped, expired, diedAgain, open, gone }: ReplayResult): string {
  const parts = [`${published} published`, `${diedAgain} died again`];
  if (skipped > 0) parts.push(`${skipped} skipped`);
  if (expired > 0) parts.push(`${expired} expired and not sent`);
  if (gone > 0) parts.push(`${gone} removed by retention`);
  if (open > 0) parts.push(`${open} not settled in time (is the channel paused? see channels list)`);
  return parts.join(', ');
}

const codeOf = ({ diedAgain, open }: ReplayResult): ExitCode =>
  diedAgain > 0 || open > 0 ? EXIT.failed : EXIT.done;

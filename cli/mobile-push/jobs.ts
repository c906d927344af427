/** `mobile`: push jobs to phones. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { DEFAULT_MOBILE_STREAM, PRIORITIES } from '../../api/mobile-push/job.ts';
import { checkedMobileJob } from '../../api/mobile-push/message.ts';
import { NotFoundError } from '../../client/errors.ts';
import type { MobileJobFilter, MobileJobSummary, MobileJobView } from '../../client/mobile-push/jobs.ts';
import { MOBILE_STATUSES, REPLAYABLE } from '../../client/mobile-push/jobs.ts';
import { waitUntil } from '../../client/wait-until.ts';
import type { ExitCode, GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, helpWith, showPage } from '../command.ts';
import type { Requested } from '../options.ts';
import {
  givenOf,
  limitOption,
  parseEntryId,
  parseFuture,
  requestedByOption,
  sinceOption,
  untilOption,
  waitLimitOption,
} from '../options.ts';
import { printFields, printHeading, printJson, printLine, printTable, report } from '../output.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { operate, withOperationOptions } from '../operations.ts';
import { withSession } from '../session.ts';

export function addMobileCommands(program: Command): void {
  const mobile = program.command('mobile').description('Push jobs to phones: send, find, look into, replay');
  addSend(mobile);
  addList(mobile);

  mobile
    .command('show')
    .description('Show a job with its sends: which device was reached, which was not and why.')
    .argument('<job id>', 'id of the stream entry', parseEntryId)
    .addHelpText('after', helpWith('galaxy-notify mobile show 1790000000000-0'))
    .action(
      action<object, [string]>(({ json }, jobId) =>
        withSession(['postgres'], async ({ operator }) => {
          const view = await operator.mobile.show(jobId);
          if (json) printJson(view);
          else printMobileJob(view);
        }),
      ),
    );

  addReplay(mobile);

  mobile
    .command('cancel')
    .description('End a job that is under way; what was not sent counts as failed, and can be replayed.')
    .argument('<job id>', 'id of the stream entry', parseEntryId)
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify mobile cancel 1790000000000-0'))
    .action(
      action<Requested, [string]>(({ json, requestedBy }, jobId) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          await operator.mobile.cancel(jobId, { requestedBy });
          if (json) printJson({ cancelled: jobId });
          else printLine(`${jobId} is being cancelled; see mobile show ${jobId}`);
        }),
      ),
    );
}

interface SendOptions extends GlobalOptions {
  user: string;
  title?: string;
  body?: string;
  channel: string;
  badge?: string;
  data?: string;
  priority?: string;
  expiresAt?: Date;
  wait?: boolean;
  timeout: number;
}

function addSend(mobile: Command): void {
  mobile
    .command('send')
    .description('Check a job as the service does, append it to the stream, and print its id.')
    .requiredOption('--user <id>', 'the user whose devices get the push')
    .option('--title <text>', 'headline of the notification')
    .option('--body <text>', 'text of the notification; without both, the push is silent')
    .option('--channel <name>', "Android's notification channel", 'default')
    .option('--badge <n>', "number on the app's icon")
    .option('--data <json>', 'for the app: a JSON object')
    .addOption(new Option('--priority <priority>', 'urgency (default: high)').choices(PRIORITIES))
    .option('--expires-at <time>', 'not sent or kept after that: 1h from now, or an ISO time', parseFuture)
    .option('--wait', 'wait until the job has ended, and show it; exit code 1 when a device was not reached')
    .addOption(waitLimitOption('that'))
    .addHelpText(
      'after',
      helpWith(
        "galaxy-notify mobile send --user user-1 --title 'Your turn' --body 'Andromeda, turn 54' --wait",
        'galaxy-notify mobile send --user user-1 --title T --body B --badge 3 --data \'{"game_id":"g-1"}\'',
      ),
    )
    .action(
      action<SendOptions>((options) =>
        withSession(options.wait ? ['redis', 'postgres'] : ['redis'], async ({ operator, resources }) => {
          const fields = fieldsOf(options);
          const jobId = await resources.redis.xadd(DEFAULT_MOBILE_STREAM, '*', ...fields.flat());
          if (jobId === null) throw new Error(`Redis appended nothing to ${DEFAULT_MOBILE_STREAM}`);
          if (!options.wait) {
            if (options.json) printJson({ jobId });
            else printLine(jobId);
            return EXIT.done;
          }
          const ended = await waitUntil(
            async () => {
              const view = await operator.mobile.show(jobId).catch((error: unknown) => {
                if (error instanceof NotFoundError) return undefined;
                throw error;
              });
              return view && view.status !== 'pending' ? view : undefined;
            },
            { limitMs: options.timeout },
          );
          if (!ended) {
            report(`job ${jobId} has not ended yet: mobile show ${jobId}`);
            return EXIT.failed;
          }
          if (options.json) printJson(ended);
          else printMobileJob(ended);
          return ended.status === 'sent' ? EXIT.done : EXIT.failed;
        }),
      ),
    );
}

/** @throws UsageError for what the service would refuse. */
function fieldsOf({
  user,
  title,
  body,
  channel,
  badge,
  data,
  priority,
  expiresAt,
}: SendOptions): [string, string][] {
  const fields: [string, string][] = [
    ['userId', user],
    ...(title === undefined ? [] : [['title', title] as [string, string]]),
    ...(body === undefined ? [] : [['body', body] as [string, string]]),
    ['channel', channel],
    ...(badge === undefined ? [] : [['badge', badge] as [string, string]]),
    ...(data === undefined ? [] : [['data', data] as [string, string]]),
    ...(priority === undefined ? [] : [['priority', priority] as [string, string]]),
    ...(expiresAt === undefined ? [] : [['expires_at_ms', String(expiresAt.getTime())] as [string, string]]),
  ];
  const parsed = checkedMobileJob(
    '0-0',
    fields.map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
  );
  if (!parsed.ok) {
    const { failureCode, failureMessage } = parsed.malformed;
    throw new UsageError(`the service would refuse this job: ${failureCode}, ${failureMessage}`);
  }
  return fields;
}

const withFilters = (command: Command, statuses: readonly string[]): Command =>
  command
    .addOption(new Option('--status <status>', 'status of the job').choices(statuses))
    .option('--user <id>', 'jobs of this user')
    .option('--code <code>', 'why the last send failed, or the entry was refused')
    .addOption(sinceOption('arrived'))
    .addOption(untilOption('arrived'));

type FilterOptions = Omit<MobileJobFilter, 'userId'> & { user?: string };

function filterOf({
  user,
  status,
  code,
  replayable,
  retrying,
  since,
  until,
}: FilterOptions): MobileJobFilter {
  return givenOf({ status, userId: user, code, replayable, retrying, since, until });
}

function addList(mobile: Command): void {
  withFilters(mobile.command('list'), MOBILE_STATUSES)
    .description('List jobs, newest first.')
    .option('--replayable', 'jobs that a replay may help: devices not reached, or pending for over an hour')
    .option('--retrying', 'jobs with a device that is between two attempts, and when the next one is')
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify mobile list --replayable --since 1h',
        'galaxy-notify mobile list --retrying --watch',
        'galaxy-notify mobile list --user user-1',
      ),
    )
    .action(
      action<FilterOptions & { limit: number }>((options) =>
        withSession(['postgres'], async ({ operator }) =>
          showPage(
            await operator.mobile.list({ ...filterOf(options), limit: options.limit }),
            options,
            options.retrying ? printRetrying : printJobs,
          ),
        ),
      ),
    );
}

function printJobs(items: MobileJobSummary[]): void {
  printTable(
    ['ARRIVED', 'JOB', 'USER', 'STATUS', 'SENT', 'STALE', 'FAILED', 'LAST ERROR'],
    items.map((item) => [
      item.createdAt,
      item.jobId,
      item.userId,
      item.status,
      item.sent,
      item.removed,
      item.failed,
      item.errorCode,
    ]),
    { flexible: 7, linked: 1, links: items.map(({ link }) => link) },
  );
}

function printRetrying(items: MobileJobSummary[]): void {
  printTable(
    ['ARRIVED', 'JOB', 'USER', 'DEVICES', 'ATTEMPT', 'NEXT ATTEMPT', 'FAILED', 'LAST FAILURE'],
    items.map(({ createdAt, jobId, userId, retry }) => [
      createdAt,
      jobId,
      userId,
      retry?.devices,
      retry?.attempt,
      retry?.nextAttemptAt,
      retry?.lastFailureAt,
      retry?.lastCode,
    ]),
    { flexible: 7, linked: 1, links: items.map(({ link }) => link) },
  );
}

type ReplayOptions = OperationCommandOptions & FilterOptions;

function addReplay(mobile: Command): void {
  withOperationOptions(withFilters(mobile.command('replay'), REPLAYABLE), 'jobs')
    .description(
      'Repeat sends that failed, with a fresh budget; a device that has the push gets nothing. Without a job id, all jobs that match the filters are replayed.',
    )
    .argument('[job id]', 'this job only', parseEntryId)
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify mobile replay 1790000000000-0',
        'galaxy-notify mobile replay --status failed --since 2h --dry-run',
        'galaxy-notify mobile replay --code messaging/authentication-error --since 2h --yes',
      ),
    )
    .action(
      action<ReplayOptions, [string | undefined]>((options, jobId) => {
        const filter = filterOf(options);
        const hasFilter = Object.keys(filter).length > 0;
        if (jobId !== undefined && hasFilter) throw new UsageError('a job that is named takes no filters');
        if (jobId === undefined && !hasFilter) {
          throw new UsageError('say which: a job id, or filters; --since 30d for everything of 30 days');
        }
        return jobId === undefined ? replayMany(filter, options) : replayOne(jobId, options);
      }),
    );
}

function replayOne(jobId: string, { json, requestedBy }: ReplayOptions): Promise<ExitCode> {
  return withSession(['postgres', 'temporal'], async ({ operator }) => {
    await operator.mobile.replay(jobId, { requestedBy });
    if (json) printJson({ replayed: [jobId] });
    else printLine(`the failed sends of ${jobId} are repeated; see mobile show ${jobId}`);
    return EXIT.done;
  });
}

function replayMany(filter: MobileJobFilter, options: ReplayOptions): Promise<ExitCode> {
  return operate(options, {
    what: 'job',
    verb: 'replay',
    count: async (operator) => ({ matching: await operator.mobile.countReplayable(filter) }),
    nothing: 'no job that can be replayed matches',
    begin: (operator, request) => operator.operations.resend(filter, request),
  });
}

const wordsOfAction = ({ action: name, requestedBy, actedAt }: NonNullable<MobileJobView['lastAction']>) =>
  `${name} by ${requestedBy} at ${actedAt.toISOString()}`;

function printMobileJob(view: MobileJobView): void {
  printHeading(`Mobile push job ${view.jobId}`);
  printFields([
    ['status', view.status],
    ['user', view.userId],
    ['channel', view.channel],
    ['arrived', view.createdAt],
    ['changed', view.updatedAt],
    [
      'devices',
      view.tokens === 0 ? undefined : `${view.sent} reached, ${view.removed} stale, ${view.failed} failed`,
    ],
    ['error', view.errorCode],
    ['message', view.errorMessage],
    ['content', view.content === undefined ? undefined : JSON.stringify(view.content)],
    ['workflow', view.live?.status],
    ['waits for', view.live?.details],
    ['last asked for', view.lastAction && wordsOfAction(view.lastAction)],
    ['link', view.live?.link ?? view.link],
  ]);
  if (view.rawFields) {
    printHeading('Fields of the entry, cut where they are long');
    printFields(Object.entries(view.rawFields));
  }
  if (view.sends.length === 0) return;
  printHeading('Sends');
  printTable(
    ['DEVICE', 'STATUS', 'ATTEMPTS', 'CHANGED', 'LAST CODE', 'PUSH ID', 'FCM MESSAGE'],
    view.sends.map((send) => [
      send.deviceTokenId,
      send.status,
      send.attempts,
      send.updatedAt,
      send.lastCode,
      send.pushId,
      send.messageId,
    ]),
    { flexible: 6 },
  );
}

/** `mobile`: push jobs to phones. */
import type { Command } from 'commander';
import { given } from '../../api/given.ts';
import { DEFAULT_MOBILE_STREAM, PRIORITIES } from '../../api/mobile-push/job.ts';
import { checkedMobileJob } from '../../api/mobile-push/message.ts';
import { NotFoundError, OperationFailedError } from '../../client/errors.ts';
import type { MobileJobFilter, MobileJobSummary, MobileJobView } from '../../client/mobile-push/jobs.ts';
import { MOBILE_STATUSES, REPLAYABLE } from '../../client/mobile-push/jobs.ts';
import { waitUntil } from '../../client/wait-until.ts';
import type { GlobalOptions } from '../command.ts';
import { EXIT, UsageError } from '../command.ts';
import { define, list, option, printRawFields } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseEntryId, parseFuture, requestedByOption, spanOptions, waitLimitOption } from '../options.ts';
import type { Columns } from '../output.ts';
import { printFields, printHeading, printItems, printJson, printLine } from '../output.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { addOneOrMany } from '../operations.ts';
import { withSession } from '../session.ts';
import type { Session } from '../session.ts';

export function addTo(mobile: Command): void {
  addSend(mobile);

  list(mobile, {
    description: 'List jobs, newest first.',
    filters: {
      ...filters(MOBILE_STATUSES),
      replayable: option(
        '--replayable',
        'jobs that a replay may help: devices not reached, or pending for over an hour',
      ),
      retrying: option(
        '--retrying',
        'jobs with a device that is between two attempts, and when the next one is',
      ),
    },
    examples: [
      'mobile list --replayable --since 1h',
      'mobile list --retrying --watch',
      'mobile list --user user-1',
    ],
    read: ({ operator }: Session) => operator.mobile.list,
    print: (items, { retrying }) => printItems(items, retrying ? RETRYING : JOBS, { flexible: 7, linked: 1 }),
  });

  define(mobile, {
    name: 'show',
    description: 'Show a job with its sends: which device was reached, which was not and why.',
    args: [JOB_ID],
    examples: ['mobile show 1790000000000-0'],
    run: ({ operator }, _options: object, jobId: string) => operator.mobile.show(jobId),
    print: printMobileJob,
  });

  addOneOrMany(mobile, {
    name: 'replay',
    description:
      'Repeat sends that failed, with a fresh budget; a device that has the push gets nothing. Without a job id, all jobs that match the filters are replayed.',
    id: ['[job id]', 'this job only', parseEntryId],
    ...{ a: 'a job', things: 'jobs', filters: filters(REPLAYABLE) },
    examples: [
      'mobile replay 1790000000000-0',
      'mobile replay --status failed --since 2h --dry-run',
      'mobile replay --code messaging/authentication-error --since 2h --yes',
    ],
    one: (jobId, { json, requestedBy }: OperationCommandOptions) =>
      withSession(['postgres', 'temporal'], async ({ operator }) => {
        await operator.mobile.replay(jobId, { requestedBy });
        if (json) printJson({ replayed: [jobId] });
        else printLine(`the failed sends of ${jobId} are repeated; see mobile show ${jobId}`);
        return EXIT.done;
      }),
    many: (filter: MobileJobFilter) => ({
      ...{ what: 'job', verb: 'replay', nothing: 'no job that can be replayed matches' },
      count: async (operator) => ({ matching: await operator.mobile.countReplayable(filter) }),
      start: (operator, request) => operator.operations.resend(filter, request),
    }),
  });

  define(mobile, {
    name: 'cancel',
    description: 'End a job that is under way; what was not sent counts as failed, and can be replayed.',
    args: [JOB_ID],
    options: [requestedByOption()],
    examples: ['mobile cancel 1790000000000-0'],
    needs: ['postgres', 'temporal'],
    async run({ operator }, { requestedBy }: Requested, jobId: string) {
      await operator.mobile.cancel(jobId, { requestedBy });
      return { cancelled: jobId };
    },
    print: (_, _options, [jobId]) => `${jobId} is being cancelled; see mobile show ${jobId}`,
  });
}

const JOB_ID = ['<job id>', 'id of the stream entry', parseEntryId] as const;

const JOBS: Columns<MobileJobSummary> = {
  ARRIVED: 'createdAt',
  JOB: 'jobId',
  USER: 'userId',
  STATUS: 'status',
  SENT: 'sent',
  STALE: 'removed',
  FAILED: 'failed',
  'LAST ERROR': 'errorCode',
};

const RETRYING: Columns<MobileJobSummary> = {
  ARRIVED: 'createdAt',
  JOB: 'jobId',
  USER: 'userId',
  DEVICES: ({ retry }) => retry?.devices,
  ATTEMPT: ({ retry }) => retry?.attempt,
  'NEXT ATTEMPT': ({ retry }) => retry?.nextAttemptAt,
  FAILED: ({ retry }) => retry?.lastFailureAt,
  'LAST FAILURE': ({ retry }) => retry?.lastCode,
};

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
  define(mobile, {
    name: 'send',
    description: 'Check a job as the service does, append it to the stream, and print its id.',
    options: [
      option('--user <id>', 'the user whose devices get the push').makeOptionMandatory(),
      option('--title <text>', 'headline of the notification'),
      option('--body <text>', 'text of the notification; without both, the push is silent'),
      option('--channel <name>', "Android's notification channel").default('default'),
      option('--badge <n>', "number on the app's icon"),
      option('--data <json>', 'for the app: a JSON object'),
      option('--priority <priority>', 'urgency (default: high)').choices(PRIORITIES),
      option('--expires-at <time>', 'not sent or kept after that: 1h from now, or an ISO time', parseFuture),
      option(
        '--wait',
        'wait until the job has ended, and show it; exit code 1 when a device was not reached',
      ),
      waitLimitOption('that'),
    ],
    examples: [
      "mobile send --user user-1 --title 'Your turn' --body 'Andromeda, turn 54' --wait",
      'mobile send --user user-1 --title T --body B --badge 3 --data \'{"game_id":"g-1"}\'',
    ],
    async run({ operator, resources }, options: SendOptions): Promise<{ jobId: string } | MobileJobView> {
      const jobId = await resources.redis.xadd(DEFAULT_MOBILE_STREAM, '*', ...fieldsOf(options).flat());
      if (jobId === null) throw new Error(`Redis appended nothing to ${DEFAULT_MOBILE_STREAM}`);
      if (!options.wait) return { jobId };
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
      if (!ended) throw new OperationFailedError(`job ${jobId} has not ended yet: mobile show ${jobId}`);
      return ended;
    },
    needs: ({ wait }) => (wait ? ['redis', 'postgres'] : ['redis']),
    check: (options) => void fieldsOf(options),
    print: (sent) => ('status' in sent ? printMobileJob(sent) : sent.jobId),
    end: (sent) => ('status' in sent && sent.status !== 'sent' ? EXIT.failed : EXIT.done),
  });
}

/** @throws UsageError for what the service would refuse. */
function fieldsOf({ user: userId, expiresAt, ...options }: SendOptions): [string, string][] {
  const { title, body, channel, badge, data, priority } = options;
  const expires_at_ms = expiresAt && String(expiresAt.getTime());
  const fields = Object.entries(
    given({ userId, title, body, channel, badge, data, priority, expires_at_ms }),
  );
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

const filters = (statuses: readonly string[]) => ({
  status: option('--status <status>', 'status of the job').choices(statuses),
  userId: option('--user <id>', 'jobs of this user'),
  code: option('--code <code>', 'why the last send failed, or the entry was refused'),
  ...spanOptions('arrived'),
});

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
  if (view.rawFields) printRawFields(view.rawFields);
  if (view.sends.length === 0) return;
  printHeading('Sends');
  printItems(
    view.sends,
    {
      DEVICE: 'deviceTokenId',
      STATUS: 'status',
      ATTEMPTS: 'attempts',
      CHANGED: 'updatedAt',
      'LAST CODE': 'lastCode',
      'PUSH ID': 'pushId',
      'FCM MESSAGE': 'messageId',
    },
    { flexible: 6 },
  );
}

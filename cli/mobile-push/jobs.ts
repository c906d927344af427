/** `mobile`: push jobs to phones, and what `doctor` looks at. */
import type { Command } from 'commander';
import type { Pool } from 'pg';
import { given } from '../../api/given.ts';
import { DEFAULT_MOBILE_STREAM, PRIORITIES } from '../../api/mobile-push/job.ts';
import { checkedMobileJob } from '../../api/mobile-push/message.ts';
import { OperationFailedError, causeOf, unlessMissing } from '../../client/errors.ts';
import type { MobileJobView } from '../../client/mobile-push/jobs.ts';
import { MOBILE_STATUSES, REPLAYABLE } from '../../client/mobile-push/jobs.ts';
import { waitUntil } from '../../client/temporal.ts';
import type { CheckGroup, ConsumerGroup, Diagnosis } from '../checks.ts';
import { consumerGroup, error, ok, warn } from '../checks.ts';
import type { GlobalOptions } from '../command.ts';
import { EXIT, UsageError } from '../command.ts';
import { define, list, option, printRawFields } from '../definition.ts';
import { parseEntryId, parseFuture, spanOptions, waitLimitOption } from '../options.ts';
import { printHeading, printItems, printView } from '../output.ts';
import { addOperation } from '../operations.ts';
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
    },
    examples: ['mobile list --replayable --since 1h', 'mobile list --user user-1'],
    read: ({ operator }: Session) => operator.mobile.list,
    columns: ['createdAt', 'jobId', 'userId', 'status', 'sent', 'removed', 'failed', 'errorCode'],
  });

  define(mobile, {
    name: 'show',
    description: 'Show a job with its sends: which device was reached, which was not and why.',
    args: [JOB_ID],
    examples: ['mobile show 1790000000000-0'],
    run: ({ operator }, _options: object, jobId: string) => operator.mobile.show(jobId),
    print: printMobileJob,
  });

  addOperation(mobile, {
    ...{ name: 'replay', kind: 'resend', what: 'job', verb: 'replay' },
    description:
      'Repeat sends that failed, with a fresh budget; a device that has the push gets nothing. Without a job id, all jobs that match the filters are replayed.',
    named: { jobId: ['[job id]', 'this job only', parseEntryId] },
    filters: filters(REPLAYABLE),
    examples: [
      'mobile replay 1790000000000-0',
      'mobile replay --status failed --since 2h --dry-run',
      'mobile replay --code messaging/authentication-error --since 2h --yes',
    ],
    columns: ['jobs', 'status', 'code', 'oldest', 'newest'],
  });
}

const JOB_ID = ['<job id>', 'id of the stream entry', parseEntryId] as const;

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
          const view = await operator.mobile.show(jobId).catch(unlessMissing);
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

function printMobileJob({ sends, rawFields, live, ...job }: MobileJobView): void {
  printHeading(`Mobile push job ${job.jobId}`);
  printView({ ...job, workflow: live?.status, waitsFor: live?.pendingActivities[0]?.lastFailure });
  if (rawFields) printRawFields(rawFields);
  if (sends.length === 0) return;
  printHeading('Sends');
  printItems(sends, [
    ...(['deviceTokenId', 'status', 'attempts', 'nextAttemptAt', 'updatedAt'] as const),
    ...(['lastCode', 'pushId', 'messageId'] as const),
  ]);
}

/** What can be wrong with mobile pushes: their consumer group, and the table of device tokens. */
export const mobileChecks = (db: Pool, group: ConsumerGroup): CheckGroup => [
  ['mobile: consumer group', () => consumerGroup(group, 'mobile-push')],
  ['mobile: device tokens', () => diagnoseTokens(db)],
];

/** The table of another service, without which every job waits. */
async function diagnoseTokens(db: Pool): Promise<Diagnosis> {
  try {
    await db.query('SELECT id, "userId", token FROM public.device_token LIMIT 0');
  } catch (failure) {
    return error(
      causeOf(failure),
      'every job waits until the owner of public.device_token has made that right',
    );
  }
  const { rows } = await db.query<{ may_delete: boolean; is_indexed: boolean }>(CHECK_DEVICE_TOKENS);
  const [{ may_delete: mayDelete, is_indexed: isIndexed }] = rows as [(typeof rows)[number]];
  if (!mayDelete)
    return error('no right to DELETE on public.device_token', 'GRANT DELETE ON public.device_token');
  return isIndexed
    ? ok('public.device_token can be read by user, and stale tokens deleted')
    : warn('public.device_token has no index on "userId"', 'each job reads the whole table until it has one');
}

const CHECK_DEVICE_TOKENS = `
  SELECT has_table_privilege('public.device_token', 'DELETE') AS may_delete,
         EXISTS (
           SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
            WHERE indrelid = 'public.device_token'::regclass AND attname = 'userId' AND indisvalid
         ) AS is_indexed`;

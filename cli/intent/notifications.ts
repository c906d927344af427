/** `notifications` and `malformed`: what became of intents, accepted or refused. */
import type { Command } from 'commander';
import { given } from '../../api/given.ts';
import { MALFORMED_CODES } from '../../api/intent/entry.ts';
import type { Correction } from '../../api/intent/mending.ts';
import type { MalformedEntry } from '../../client/intent/intents.ts';
import type { NotificationStage, NotificationView } from '../../client/intent/notifications.ts';
import { NOTIFICATION_STATUSES } from '../../client/intent/notifications.ts';
import type { LiveState } from '../../client/temporal.ts';
import { define, list, option, printRawFields } from '../definition.ts';
import { addPair, limitOption, parseEntryId, producerOption, spanOptions, typeOption } from '../options.ts';
import { printFields, printHeading, printItems, printView, report } from '../output.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { addOperation } from '../operations.ts';
import type { Session } from '../session.ts';

export function addNotifications(notifications: Command): void {
  list(notifications, {
    description: 'List accepted notifications, newest first.',
    filters: {
      ...{ type: typeOption(), producer: producerOption() },
      status: option(
        '--status <status>',
        'open: a route will still be tried; settled: none will; dead_letter: at least one route is dead',
      ).choices(NOTIFICATION_STATUSES),
      idempotencyKey: option('--key <key>', 'idempotency key'),
      recipient: option(
        '--user <id>',
        'for this user, or for the administrator with this address; see also why',
      ),
      ...spanOptions('accepted'),
    },
    examples: [
      'notifications list --status open',
      'notifications list --key game-7/turn-54 --json',
      'notifications list --user user-17 --since 2d',
      'notifications list --type game.finished --since 2026-01-31 --until 2026-02-01',
    ],
    read: ({ operator }: Session) => operator.notifications.list,
    columns: {
      ACCEPTED: 'acceptedAt',
      NOTIFICATION: 'notificationId',
      TYPE: 'type',
      OPEN: 'open',
      PUBLISHED: 'published',
      SKIPPED: 'skipped',
      DEAD: 'deadLettered',
      KEY: 'idempotencyKey',
    },
  });

  define(notifications, {
    name: 'show',
    description:
      'Show a notification: its record, its routes, and what it waits for right now; of a refused entry, why, and its fields.',
    args: [['<notification id>', 'id of the stream entry', parseEntryId]],
    options: [limitOption()],
    examples: ['notifications show 1790000000000-0'],
    run: ({ operator }, { limit }: { limit: number }, id: string) => operator.notifications.show(id, limit),
    print: printNotification,
  });

  addOperation(notifications, {
    ...{ name: 'cancel', kind: 'cancel', what: 'notification', verb: 'cancel' },
    description:
      'Cancel notifications: routes that are not published yet are skipped for good. Without a notification id, all that match the filters now are cancelled, also those that were not accepted yet; entries that were not read are left alone.',
    named: { notificationId: ['[notification id]', 'id of the stream entry', parseEntryId] },
    filters: { type: typeOption(), producer: producerOption(), ...spanOptions('accepted') },
    examples: [
      'notifications cancel 1790000000000-0',
      'notifications cancel --producer game_master --since 1h --dry-run',
      "notifications cancel --producer game_master --since 1h --rate 200 --yes --reason 'INC-42'",
    ],
    columns: ['notifications', 'state', 'type', 'producer', 'oldest', 'newest'],
  });
}

const STAGES: Record<NotificationStage, string> = {
  unread: 'in the stream; the reader has not come to it yet (see bridge status)',
  accepting: 'waiting for acceptance',
  accepted: 'accepted',
  malformed: 'refused, no recipient gets anything',
  ended: 'ended without a record',
};

export function printNotification(view: NotificationView): void {
  const { record, live, stage, duplicateOf, cancelledAt } = view;
  const { recipientUserIds, ...recorded } = record ?? {};
  const recipients = recipientUserIds && recipientsOf(recipientUserIds);
  printHeading(`Notification ${view.notificationId}`);
  printView({ state: STAGES[stage], duplicateOf, cancelledAt, ...recorded, recipients });
  printFields([
    ['routes', totalsOf(view.totals)],
    // Before the reader has come to it there is no workflow to tell about.
    ['workflow', stage === 'unread' ? undefined : workflowLine(view)],
    ...(live ? waitingLines(live) : []),
    // The link of the latest run is known even when Temporal does not answer.
    ['link', stage === 'unread' ? undefined : (live?.link ?? view.link)],
  ]);
  if (view.malformed) printMalformed(view.malformed);
  if (view.routes.length > 0) printRoutes(view);
  if (view.deadLetters.length > 0) {
    printHeading('Dead letters');
    printItems(
      view.deadLetters,
      { DIED: 'diedAt', ROUTE: 'routeId', FAILURE: 'failure', 'STATUS NOW': 'status', HINT: 'recoveryHint' },
      1,
    );
  }
  if (view.replays.length > 0) {
    printHeading('Replays');
    printItems(view.replays, ['createdAt', 'routeId', 'generation', 'requestedBy', 'reason']);
  }
}

function printRoutes({ routes, hasMoreRoutes }: NotificationView): void {
  printHeading('Routes');
  printItems(routes, {
    ROUTE: 'routeId',
    STATUS: 'status',
    ATTEMPTS: ({ attempts, maxAttempts }) => `${attempts} of ${maxAttempts}`,
    SETTLED: 'settledAt',
    'NEXT ATTEMPT': 'nextAttemptAt',
    'LAST ERROR': ({ lastError, skipReason }) =>
      lastError ? `${lastError.classification}: ${lastError.message}` : skipReason,
  });
  if (hasMoreRoutes) report(`${routes.length} routes are shown, there are more: raise --limit`);
}

function waitingLines(live: LiveState): [string, string | undefined][] {
  return [
    ['waits for', live.details],
    ...live.pendingActivities.map((activity): [string, string] => [
      'activity',
      [
        `${activity.type}, attempt ${activity.attempt}`,
        ...(activity.isPaused ? ['paused'] : []),
        ...(activity.lastFailure === undefined ? [] : [`last failure: ${activity.lastFailure}`]),
        ...(activity.nextAttemptAt ? [`next at ${activity.nextAttemptAt.toISOString()}`] : []),
      ].join('; '),
    ]),
  ];
}

/** Which workflow took it together with others, and how that one stands. */
function workflowLine({ live, liveUnavailable }: NotificationView): string {
  if (liveUnavailable !== undefined) return `unknown, Temporal did not answer: ${liveUnavailable}`;
  if (!live)
    return 'not known to Temporal: it never ran, or ended longer ago than the retention of its namespace';
  const result = live.result === undefined ? '' : `, returned ${JSON.stringify(live.result)}`;
  const children = live.pendingChildren > 0 ? `, waits for ${live.pendingChildren} workflows of routes` : '';
  const closed = live.closedAt ? ` at ${live.closedAt.toISOString()}` : '';
  return `${live.status}${closed}${children}${result}`;
}

function recipientsOf(userIds: readonly string[]): string {
  const shown = userIds.slice(0, 5).join(', ');
  return userIds.length > 5 ? `${userIds.length}: ${shown}, …` : shown;
}

/** In the order in which a route goes through them. */
const STATUSES = ['pending', 'failed', 'published', 'skipped', 'dead_letter'];

function totalsOf(totals: Record<string, number>): string {
  return STATUSES.flatMap((status) => (totals[status] ? [`${totals[status]} ${status}`] : [])).join(', ');
}

interface RepublishOptions extends OperationCommandOptions {
  set?: Record<string, string>;
  newKey?: boolean;
}

export function addMalformed(malformed: Command): void {
  list(malformed, {
    description: 'List malformed entries, newest first; notifications show has the fields of one.',
    filters: malformedFilters(),
    examples: ['malformed list --since 1h', 'malformed list --code recipient_not_found --json'],
    read: ({ operator }: Session) => operator.malformed.list,
    columns: ['recordedAt', 'entryId', 'code', 'type', 'producer', 'message'],
  });

  addOperation(malformed, {
    ...{ name: 'republish', kind: 'republish', what: 'refused intent', verb: 'republish' },
    description:
      'Correct refused entries and publish them again; the service checks each as any other. Without an entry id, all that match the filters; those that would be refused again are left alone.',
    named: { entryId: ['[entry id]', 'id of the stream entry', parseEntryId] },
    filters: malformedFilters(),
    options: [
      option('--set <field=value>', 'another value for a field of the entry; may be repeated', addPair),
      option('--new-key', 'with a new idempotency key: the old one stands for other content'),
    ],
    examples: [
      'malformed republish 1790000000000-0',
      'malformed republish 1790000000000-0 --set producer=game_master --dry-run',
      'malformed republish 1790000000000-0 --new-key',
      'malformed republish --code recipient_not_found --since 1h --dry-run',
      'malformed republish --code recipient_not_found --since 1h --rate 100 --yes',
    ],
    columns: ['entries', 'code', 'type', 'producer', 'oldest', 'newest'],
    async look(operator, { entryId }, options: RepublishOptions) {
      const fields = await operator.malformed.correct(entryId!, correctionOf(options));
      if (!options.json) printFields(Object.entries(fields));
    },
    correctionOf,
  });
}

const malformedFilters = () => ({
  code: option('--code <code>', 'why it was refused').choices(MALFORMED_CODES),
  producer: producerOption(),
  // An entry may name a type that does not exist: that is one of the reasons.
  type: option('--type <type>', 'notification type as the entry gives it'),
  ...spanOptions('recorded'),
});

const correctionOf = ({ set, newKey }: RepublishOptions): Correction => given({ set, newKey });

function printMalformed({ entryId, rawFields, ...entry }: MalformedEntry): void {
  printHeading(`Malformed intent ${entryId}`);
  printView(entry);
  printRawFields(rawFields);
}

/** One notification, for a person. */
import type { NotificationStage, NotificationView, RouteView } from '../../client/intent/notifications.ts';
import type { LiveState } from '../../client/live.ts';
import { printFields, printHeading, printItems, report } from '../output.ts';
import { printMalformed } from './malformed.ts';

const STAGES: Record<NotificationStage, string> = {
  unread: 'in the stream; the reader has not come to it yet (see bridge status)',
  accepting: 'waiting for acceptance',
  accepted: 'accepted',
  malformed: 'refused, no recipient gets anything',
  ended: 'ended without a record',
};

export function printNotification(view: NotificationView): void {
  const { record, live } = view;
  printHeading(`Notification ${view.notificationId}`);
  printFields([
    ['state', STAGES[view.stage]],
    ['duplicate of', view.duplicateOf],
    ['cancelled', view.cancelledAt],
    ['type', record?.type],
    ['producer', record?.producer],
    ['audience', record?.audience],
    ['recipients', record?.recipientUserIds ? recipientsOf(record.recipientUserIds) : undefined],
    ['key', record?.idempotencyKey],
    ['occurred', record?.occurredAt],
    ['expires', record?.expiresAt ?? undefined],
    ['accepted', record?.acceptedAt],
    ['key reserved until', record?.idempotencyExpiresAt],
    ['request id', record?.requestId ?? undefined],
    ['trace id', record?.traceId ?? undefined],
    ['traceparent', record?.traceparent ?? undefined],
    ['payload', record && JSON.stringify(record.payload)],
    ['routes', totalsOf(view.totals)],
    // Before the reader has come to it there is no workflow to tell about.
    ['workflow', view.stage === 'unread' ? undefined : workflowLine(view)],
    ...(live ? waitingLines(live) : []),
    // The link of the latest run is known even when Temporal does not answer.
    ['link', view.stage === 'unread' ? undefined : (live?.link ?? view.link)],
  ]);
  if (view.malformed) printMalformed(view.malformed);
  if (view.routes.length > 0) printRoutes(view);
  if (view.deadLetters.length > 0) {
    printHeading('Dead letters');
    printItems(
      view.deadLetters,
      { DIED: 'diedAt', ROUTE: 'routeId', FAILURE: 'failure', 'STATUS NOW': 'status', HINT: 'recoveryHint' },
      { flexible: 4, linked: 1 },
    );
  }
  if (view.replays.length > 0) {
    printHeading('Replays');
    printItems(
      view.replays,
      {
        AT: 'createdAt',
        ROUTE: 'routeId',
        GENERATION: 'generation',
        BY: 'requestedBy',
        REASON: 'reason',
      },
      { flexible: 4 },
    );
  }
}

function printRoutes({ routes, hasMoreRoutes }: NotificationView): void {
  printHeading('Routes');
  printItems(
    routes,
    {
      ROUTE: 'routeId',
      STATUS: 'status',
      ATTEMPTS: ({ attempts, maxAttempts }) => `${attempts} of ${maxAttempts}`,
      SETTLED: 'settledAt',
      'NEXT ATTEMPT': 'nextAttemptAt',
      'LAST ERROR': ({ lastError, skipReason }) =>
        lastError ? `${lastError.classification}: ${lastError.message}` : skipReason,
    },
    { flexible: 5 },
  );
  if (hasMoreRoutes) report(`${routes.length} routes are shown, there are more: raise --limit`);
  for (const route of routes.filter(({ live }) => live)) printLiveRoute(route);
}

function printLiveRoute({ routeId, live, link }: RouteView): void {
  if (!live) return;
  printHeading(`Workflow of ${routeId}`);
  printFields([['status', live.status], ...waitingLines(live), ['link', live.link ?? link]]);
}

function waitingLines(live: LiveState): [string, string | undefined][] {
  return [
    ['waits for', live.details ?? live.detailsUnavailable],
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

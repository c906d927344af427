/** What operators see of each workflow in the Web UI: details of at most 400 bytes, and what it is found by. */
import { ApplicationFailure } from '@temporalio/common';
import type { OperationActivities } from '../activities/operations.ts';
import type { IntentActivities } from '../activities/intent/acceptance.ts';
import type { RouteActivities } from '../activities/intent/routes.ts';
import type { Acceptance, Death } from '../workflows/intent/contract.ts';
import { DEAD_LETTER_RUNBOOK, LOOK_SIGNAL } from '../workflows/intent/contract.ts';
import { ROUTE_DEAD_LETTERED } from '../workflows/failures.ts';
import { MAX_DETAILS_BYTES, detailsOf, shortText } from '../workflows/details.ts';
import { operationStart } from '../workflows/operation-contract.ts';
import {
  SEARCH_ATTRIBUTES,
  keyword,
  routeAttributes,
  routeStatus,
  userAttributes,
} from '../workflows/search-attributes.ts';
import type { Fakes } from './workflow-tier.ts';
import { startWorkflow } from './workflow-tier.ts';

const ROUTE = { notificationId: '1-0', routeRef: 'push:user:user-1' };
const FAILURE = 'gateway_stream_publish_failed';
const valueOf = (attributes: ReturnType<typeof userAttributes>, name: string) =>
  attributes.find(({ key }) => key.name === name)?.value;

const startNotification = (acceptance: Acceptance) =>
  startWorkflow('notification', [{ notificationId: '1-0', notificationType: 'game.turn.ready' }], {
    activities: { acceptIntent: () => acceptance } satisfies Fakes<IntentActivities>,
    children: {
      notificationRoute({ routeRef }) {
        if (routeRef.startsWith('email')) return { status: 'published' };
        throw ApplicationFailure.nonRetryable('budget spent', ROUTE_DEAD_LETTERED);
      },
    },
  });

test('I40 a notification with a dead route says so, and is found by their number', async () => {
  const routes = ['push:user:user-1', 'email:user:user-1'];
  const run = await startNotification({ outcome: 'accepted', routeCount: 3, skipped: 1, routes });
  expect(await run.result()).toMatchObject({ published: 1, skipped: 1, deadLettered: 1 });
  expect(await run.details()).toBe(
    '1 published, 1 skipped, 1 dead.\n\nDead routes need an operator until they are replayed: view Dead letters.',
  );
  expect(run.searchAttributes.get({ name: 'DeadRoutes', type: 'INT' })).toBe(1);
});

test('I40 a notification whose routes are published sets no search attribute, and one that is refused says why', async () => {
  const accepted = await startNotification({ outcome: 'accepted', routeCount: 1, skipped: 1, routes: [] });
  await accepted.result();
  expect(await accepted.details()).toBe('0 published, 1 skipped, 0 dead.');
  expect(accepted.searchAttributes.getAll()).toEqual([]);
  const refused = await startNotification({ outcome: 'idempotency_conflict', with: '9-0' });
  await refused.result();
  expect(await refused.details()).toBe('Not accepted: `idempotency_conflict 9-0`.');
});

test('I40 a dead letter shows cause, hint and runbook, and is found by what the route died of last', async () => {
  const death: Death = {
    classification: FAILURE,
    cause: `WRONGTYPE ${'x'.repeat(1_000)} someone@example.com`,
    hint: 'Check Redis, then replay the route.',
  };
  const deaths: (Death | undefined)[] = [death, { classification: 'payload_encoding_failed' }, undefined];
  const run = await startWorkflow('notificationDeadLetter', [ROUTE], {
    activities: { lookAtDeadLetter: () => deaths.shift() } satisfies Fakes<RouteActivities>,
    searchAttributes: routeStatus('dead_letter', FAILURE),
  });
  await run.advance(1_000);
  const details = await run.details();
  expect(details).toContain(`[What to do](${DEAD_LETTER_RUNBOOK})`);
  expect(details).toContain('WRONGTYPE xxx');
  expect(details).toContain('Check Redis, then replay the route.');
  run.signal(LOOK_SIGNAL);
  await run.advance(1_000);
  expect(run.searchAttributes.getAll()).toEqual(
    expect.arrayContaining(routeStatus('dead_letter', 'payload_encoding_failed')),
  );
  run.signal(LOOK_SIGNAL);
  await run.result();
});

test('I40 a route that waits for its next attempt is found by what failed', async () => {
  const details = { attemptCount: 1, maxAttempts: 3, nextAttemptAtMs: 1e12, retryInMs: 60_000 };
  const run = await startWorkflow('notificationRoute', [ROUTE], {
    activities: {
      publishRoute: () => {
        throw ApplicationFailure.nonRetryable('WRONGTYPE', FAILURE, details);
      },
    } satisfies Fakes<RouteActivities>,
  });
  await run.advance(1_000);
  expect(run.searchAttributes.getAll()).toEqual(
    expect.arrayContaining([
      keyword('NotificationId', '1-0'),
      ...routeAttributes(ROUTE.routeRef),
      ...routeStatus('failed', FAILURE),
    ]),
  );
  expect(await run.details()).toBe(`\`${FAILURE}\`: attempt 2 of 3 at 2001-09-09T01:46:40.000Z.`);
});

test('I40 U2 an operation shows its filter and its reason', async () => {
  const start = operationStart({
    ...{ operationId: 'replay-1', kind: 'replay', rate: 20, requestedBy: 'nina' },
    reason: 'INC-42 and INC-43: max@example.com asked',
    filter: { producer: 'game_master', failure: FAILURE },
  });
  expect(start.staticSummary).toBe('replay of many, asked for by nina');
  expect(start.staticDetails).toBe(
    `Reason: INC-42 and INC-43: … asked\n\nFilter: \`{"producer":"game_master","failure":"${FAILURE}"}\``,
  );
  const run = await startWorkflow('operation', start.args, {
    activities: {
      doPage: () => ({ counts: { total: 2, done: 2, ordered: 1 }, isLeft: false }),
      endOperation: () => undefined,
    } satisfies Fakes<OperationActivities>,
  });
  await run.result();
  expect(await run.details()).toBe('replay, done: 2 of 2 done, at 20 a second; 1 had nothing to do');
});

test('I40 search attributes take no address and no more than a server does', () => {
  expect(userAttributes([])).toEqual([]);
  expect(userAttributes(Array.from({ length: 32 }, (_, index) => `${index}`.padEnd(200, 'x')))).toEqual([]);
  expect(valueOf(userAttributes(['user-1', 'user-2']), 'UserId')).toEqual(['user-1', 'user-2']);
  expect(valueOf(routeAttributes('email:user:a:b'), 'UserId')).toEqual(['a:b']);
  for (const ref of ['email:email:~abc', 'push:~0123', 'email:config:game.finished'])
    expect(routeAttributes(ref)).toEqual([keyword('RouteChannel', ref.split(':')[0]!)]);
  const count = (type: string) => Object.values(SEARCH_ATTRIBUTES).filter((one) => one === type).length;
  // What a namespace on PostgreSQL or SQLite has room for.
  expect([count('Keyword') <= 10, count('KeywordList') <= 3, count('Int') <= 3]).toEqual([true, true, true]);
});

test('I40 details keep to 400 bytes, whatever they are given, and cut no link', () => {
  const link = `[What to do](https://runbook.test/${'y'.repeat(200)})`;
  const long = detailsOf('ü'.repeat(100), link, shortText('🚀'.repeat(300)), 'end');
  expect(new TextEncoder().encode(long).length).toBeLessThanOrEqual(MAX_DETAILS_BYTES);
  expect(long).not.toContain('What to do');
  expect(long).toContain('end');
  expect(shortText('🚀'.repeat(300)).isWellFormed()).toBe(true);
  expect(shortText('tell max@example.com\nnow')).toBe('tell … now');
});

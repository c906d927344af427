/** What a supervisor does when: its commands one at a time, those for all page by page, and what it waits for without any. */
import { ApplicationFailure } from '@temporalio/common';
import type { SubscriptionActivities } from '../../activities/subscription/activities.ts';
import {
  CLOSE_UPDATE,
  MAX_CONNECTIONS,
  OPEN_UPDATE,
  RECONCILE_SIGNAL,
} from '../../workflows/subscription/contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { startWorkflow } from '../workflow-tier.ts';

const DAY = 24 * 3_600_000;

function beginSupervisor(instead: Fakes<SubscriptionActivities> = {}) {
  const activities: Fakes<SubscriptionActivities> = {
    loadAgentState: () => ({ epoch: 0, isOpen: true }),
    setOpen: (_agentId, isOpen) => ({ epoch: 1, isOpen }),
    kickDue: () => 0,
    reconcileConnections: () => undefined,
    reportError: () => undefined,
    ...instead,
  };
  return startWorkflow('subscriptionSupervisor', ['a'], { activities });
}

const carriedOut = (supervisor: Awaited<ReturnType<typeof beginSupervisor>>) =>
  supervisor.calls('reconcileConnections').map(({ args: [, command] }) => command);

test('N1 commands wait while the agent is closed, and are carried out one at a time, in the order in which they came', async () => {
  const supervisor = await beginSupervisor();
  await supervisor.update(CLOSE_UPDATE);
  const many = Array.from({ length: MAX_CONNECTIONS }, (_, index) => `c${index}`);
  supervisor.signal(RECONCILE_SIGNAL, many);
  supervisor.signal(RECONCILE_SIGNAL, ['last']);
  await supervisor.advance();
  expect(carriedOut(supervisor)).toEqual([]);
  expect(await supervisor.details()).toBe('closed; 2 commands wait, 0 were carried out');
  await supervisor.update(OPEN_UPDATE);
  await supervisor.advance();
  expect(carriedOut(supervisor)).toEqual([{ connIds: many }, { connIds: ['last'] }]);
});

test('N1 a command for all is carried out page by page; one that fails is reported, and the next one is taken', async () => {
  const supervisor = await beginSupervisor({
    reconcileConnections(_agentId, { connIds, after }) {
      if (connIds) throw ApplicationFailure.nonRetryable('broken');
      return after === undefined ? 'c500' : undefined;
    },
  });
  supervisor.signal(RECONCILE_SIGNAL, ['one']);
  await supervisor.advance();
  supervisor.signal(RECONCILE_SIGNAL);
  await supervisor.advance();
  expect(carriedOut(supervisor)).toEqual([{ connIds: ['one'] }, {}, { after: 'c500' }]);
  const [report, ...others] = supervisor.calls('reportError').map(({ args }) => args[0]);
  expect([report, others]).toEqual([{ agentId: 'a', kind: 'ERR INTERNAL', error: 'reconcile: broken' }, []]);
});

test('I49 a supervisor without a command waits for a timer: one without it is taken for stuck', async () => {
  const supervisor = await beginSupervisor();
  const begunMs = supervisor.nowMs;
  await supervisor.until('a day', () => supervisor.nowMs >= begunMs + DAY);
  expect(await supervisor.details()).toBe('open; 0 commands wait, 0 were carried out');
});

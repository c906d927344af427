/** The counters of notification subscriptions. */
import type { Meter } from '@opentelemetry/api';
import type { CommandKind, Pool } from '../../workflows/subscription/contract.ts';
import type { ListKind } from '../../workflows/subscription/rules.ts';
import { countersOf } from '../counters.ts';
import type { EventKind } from './events.ts';

/** Recording functions, one per counter. */
export type SubscriptionMetrics = ReturnType<typeof createSubscriptionMetrics>;

export function createSubscriptionMetrics(meter: Meter) {
  const { counter, adder } = countersOf(meter);
  return {
    subscriptionWork: adder<{ kind: ListKind; result: 'done' | 'retry' | 'given_up' }>(
      'notification.subscriptions.work',
      'Attempts at work on subscriptions and tokens, by how they ended',
    ),
    subscriptionCommand: counter<{ kind: CommandKind }>(
      'notification.subscriptions.commands',
      'Commands that supervisors carried out',
    ),
    subscriptionEvent: counter<{ kind: EventKind }>(
      'notification.subscriptions.events',
      'Events about errors, as clients are told them',
    ),
    subscriptionDeath: counter<{ pool: Pool }>(
      'notification.subscriptions.worker_deaths',
      'Times that a worker of a pool ended by an error',
    ),
  };
}

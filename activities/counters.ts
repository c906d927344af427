/**
 * Counters of a kind of work. Their attributes are few and of bounded values: never a user, an address, or an id of a
 * notification, route or key.
 */
import type { Attributes, Meter } from '@opentelemetry/api';

/** @returns makers of counters; what they return records. */
export function countersOf(meter: Meter) {
  return {
    /** Counts one thing at a time. */
    counter<Of extends object>(name: string, description: string): (attributes: Of) => void {
      const instrument = meter.createCounter(name, { description });
      return (attributes) => instrument.add(1, attributes as Attributes);
    },

    /** Counts several things together. */
    adder<Of extends object = Record<never, never>>(name: string, description: string) {
      const instrument = meter.createCounter(name, { description });
      return (amount: number, attributes?: Of): void => {
        if (amount > 0) instrument.add(amount, attributes as Attributes | undefined);
      };
    },
  };
}

/** The counter that the reconciliations of several kinds of work share. */
export const takenUpCounter = (meter: Meter) =>
  countersOf(meter).counter<{ what: 'route' | 'intent' | 'mobile_job' }>(
    'notification.reconciliation.taken_up',
    'Overdue work that reconciliation took up',
  );

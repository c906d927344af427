/**
 * Instruments of a kind of work. Their attributes are few and of bounded values: never a user, an address, or an id of a
 * notification, route or key.
 *
 * Gauges are read from servers at each export. Each read is bounded in time and stands alone: one that hangs or fails leaves
 * its own gauges out of that export, because no value is better than a wrong one, and no others. They describe what all
 * processes share, so each process reports the same figures: take the maximum over them, not the sum.
 */
import type { Attributes, BatchObservableResult, Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { within } from '../api/within.ts';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';
import { reasonOf } from './reason.ts';

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

/** A server that takes longer is as good as away; an export must not wait for it. */
const READ_TIMEOUT_MS = 2_000;

/**
 * Rows are counted up to here: a gauge shows that there are so many, or more. Without an end, counting would take the
 * longer the worse things stand.
 */
export const COUNTED_AT_MOST = 100_000;

interface Measurement {
  gauge: string;
  value: number;
  /** Of few and bounded values. */
  attributes?: Attributes;
}

/** Gauges that one question to one server answers. */
export interface GaugeRead {
  /** By name; `unit` as OpenTelemetry has it. */
  gauges: Record<string, { description: string; unit?: string }>;
  read(): Promise<Measurement[]>;
}

/**
 * Gauges that one statement answers. Each row has a column by the name of each gauge; its other columns, of few and bounded
 * values, are the attributes.
 */
export const gaugesOfRows = (
  db: Pool,
  gauges: GaugeRead['gauges'],
  statement: Statement,
  values: unknown[] = [],
): GaugeRead => ({
  gauges,
  async read() {
    const rows = await query<Record<string, number>>(db, statement, values);
    return rows.flatMap((row) => {
      const others = Object.entries(row).filter(([column]) => !Object.hasOwn(gauges, column));
      const attributes = Object.fromEntries(others);
      return Object.keys(gauges).map((gauge) => ({ gauge, value: row[gauge]!, attributes }));
    });
  },
});

/**
 * Registers gauges.
 *
 * @param timeoutMs of each read.
 * @returns ends the observation; call it before the connections are closed.
 */
export function observeReads(
  meter: Meter,
  log: Logger,
  reads: readonly GaugeRead[],
  timeoutMs = READ_TIMEOUT_MS,
): () => void {
  const registered = reads.map(({ gauges, read }) => {
    const made = new Map(
      Object.entries(gauges).map(([name, options]) => [name, meter.createObservableGauge(name, options)]),
    );
    const once = oneAtATime(read);
    const callback = async (result: BatchObservableResult): Promise<void> => {
      try {
        const measured = await within(timeoutMs, once());
        for (const { gauge, value, attributes } of measured) {
          result.observe(made.get(gauge)!, value, attributes);
        }
      } catch (error) {
        // At most one line an export.
        log.warn({ gauges: [...made.keys()], reason: reasonOf(error) }, 'gauge not read');
      }
    };
    const observables = [...made.values()];
    meter.addBatchObservableCallback(callback, observables);
    return () => meter.removeBatchObservableCallback(callback, observables);
  });
  return () => {
    for (const end of registered) end();
  };
}

/** A read that outlives its export is awaited by the next one: a server that hangs is not asked again and again. */
function oneAtATime<T>(read: () => Promise<T>): () => Promise<T> {
  let underWay: Promise<T> | undefined;
  return () => {
    underWay ??= read().finally(() => {
      underWay = undefined;
    });
    return underWay;
  };
}

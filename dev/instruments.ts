/** All metrics that the service registers, found with a meter that only records the names. */
import type { Meter } from '@opentelemetry/api';
import { callbackGauges, createAccountCallbackMetrics } from '../activities/account-callback/activities.ts';
import { createIntentMetrics, intentGauges } from '../activities/intent/metrics.ts';
import { observeReads } from '../activities/metrics.ts';
import { createMobilePushMetrics, mobileGauges } from '../activities/mobile-push/metrics.ts';
import { retentionGauge } from '../activities/retention.ts';
import { createSubscriptionMetrics, subscriptionGauges } from '../activities/subscription/metrics.ts';
import { createSymbolConfigMetrics, symbolGauges } from '../activities/symbol-config/activities.ts';
import { GALAXY } from '../api/intent/galaxy.ts';
import { observeOutbox } from '../client/intent/outbox-relay.ts';
import { createKeyProblems } from '../workers/key-boxes.ts';
import { probeCounter } from '../workers/probes.ts';
import { observeFiles } from '../workers/renewal.ts';

export interface Instrument {
  name: string;
  kind: 'counter' | 'gauge' | 'histogram';
  unit?: string;
  description?: string;
}

export function instruments(): Instrument[] {
  const registered: Instrument[] = [];
  const note =
    (kind: Instrument['kind']) =>
    (name: string, { unit, description }: { unit?: string; description?: string } = {}) => {
      registered.push({ name, kind, ...(unit ? { unit } : {}), ...(description ? { description } : {}) });
      return { add: () => undefined };
    };
  const meter = {
    createCounter: note('counter'),
    createObservableCounter: note('counter'),
    createObservableGauge: note('gauge'),
    addBatchObservableCallback: () => undefined,
  } as unknown as Meter;
  createIntentMetrics(meter, GALAXY);
  createMobilePushMetrics(meter);
  createSymbolConfigMetrics(meter);
  createAccountCallbackMetrics(meter);
  createSubscriptionMetrics(meter);
  probeCounter(meter);
  createKeyProblems(meter, {} as never);
  observeFiles(meter, {} as never);
  const db = {} as never;
  observeReads(meter, {} as never, [
    ...[...intentGauges({ tellsOutcomes: true } as never), ...mobileGauges(db), ...subscriptionGauges(db)],
    ...[...symbolGauges(db), ...callbackGauges(db), retentionGauge(db, [])],
  ]);
  observeOutbox(meter, {} as never, {} as never);
  // Several kinds of work share a counter.
  return [...new Map(registered.map((instrument) => [instrument.name, instrument])).values()];
}

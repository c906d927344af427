/** All metrics that the service registers, found with a meter that only records the names. */
import type { Meter } from '@opentelemetry/api';
import {
  createAccountCallbackMetrics,
  observeAccountCallbacks,
} from '../activities/account-callback/metrics.ts';
import { createIntentMetrics, observeGauges } from '../activities/intent/metrics.ts';
import { createMobilePushMetrics, observeMobileJobs } from '../activities/mobile-push/metrics.ts';
import { observeRetention } from '../activities/retention.ts';
import { createSubscriptionMetrics, observeSubscriptions } from '../activities/subscription/metrics.ts';
import { createSymbolConfigMetrics, observeSymbolTargets } from '../activities/symbol-config/activities.ts';
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
  observeAccountCallbacks(meter, {} as never);
  createSubscriptionMetrics(meter);
  probeCounter(meter);
  createKeyProblems(meter, {} as never);
  observeFiles(meter, {} as never);
  observeGauges(meter, { tellsOutcomes: true } as never);
  observeMobileJobs(meter, {} as never);
  observeSubscriptions(meter, {} as never);
  observeSymbolTargets(meter, {} as never);
  observeRetention(meter, { tables: [] } as never);
  observeOutbox(meter, {} as never, {} as never);
  // Several kinds of work share a counter.
  return [...new Map(registered.map((instrument) => [instrument.name, instrument])).values()];
}

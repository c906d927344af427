/**
 * The counters of the service (seed "Observability"): its names exactly, and ours under the same prefix. Attributes
 * are few and of bounded values: never a user, an address, or an id of a notification, route or key.
 */
import type { Attributes, Meter } from '@opentelemetry/api';
import type { Channel } from '../api/catalog.ts';
import type { DeferralReason } from '../workflows/intent-contract.ts';
import type { StreamFindingKind } from '../workflows/stream-bridge-contract.ts';

/** Recording functions, one per counter. */
export type Metrics = ReturnType<typeof createMetrics>;

interface IntentAttributes {
  notification_type: string;
  producer: string;
  audience_kind: string;
}

interface RouteAttributes {
  notification_type: string;
  channel: Channel;
}

export function createMetrics(meter: Meter) {
  function counter<Of extends object>(name: string, description: string): (attributes: Of) => void {
    const instrument = meter.createCounter(name, { description });
    return (attributes) => instrument.add(1, attributes as Attributes);
  }
  return {
    intentOutcome: counter<IntentAttributes & { outcome: 'accepted' | 'duplicate' | 'rejected' }>(
      'notification.intent.outcomes',
      'Intents by how they were decided',
    ),
    intentMalformed: counter<{ failure_code: string; notification_type: string; producer: string }>(
      'notification.intent.malformed',
      'Stream entries recorded as malformed intents',
    ),
    userEnrichment: counter<{ notification_type: string; result: 'found' | 'not_found' | 'failed' }>(
      'notification.user_enrichment.attempts',
      'Lookups of a recipient in the User Service',
    ),
    publishAttempt: counter<
      RouteAttributes & { result: 'published' | 'failed'; failure_classification?: string }
    >('notification.route.publish_attempts', 'Attempts to publish that count against a budget'),
    routeRetry: counter<RouteAttributes & { failure_classification: string }>(
      'notification.route.retries',
      'Failed attempts after which another is scheduled',
    ),
    routeDeadLetter: counter<RouteAttributes & { failure_classification: string }>(
      'notification.route.dead_letters',
      'Routes that exhausted their budget',
    ),
    routeReplay: counter<RouteAttributes>(
      'notification.route.replays',
      'Dead-lettered routes that were opened again',
    ),
    routeDeferral: counter<{ channel: Channel; reason: DeferralReason | 'paused' }>(
      'notification.route.deferrals',
      'Attempts that were not made or not recorded, and spent nothing',
    ),
    streamFinding: counter<{ kind: StreamFindingKind }>(
      'notification.intent_stream.findings',
      'Losses and risks found on the intent stream',
    ),
  };
}

/**
 * The counters of the service (seed "Observability"): its names exactly, and ours under the same prefix. Attributes
 * are few and of bounded values: never a user, an address, or an id of a notification, route or key.
 */
import type { Attributes, Meter } from '@opentelemetry/api';
import type { Channel } from '../api/intent/catalog.ts';
import { NOTIFICATION_TYPES, PRODUCERS } from '../api/intent/catalog.ts';
import type { CallbackKind } from '../api/account-callback/callback.ts';
import type { CallbackInput, MalformedInputCode } from '../api/account-callback/input.ts';
import type { MalformedJobCode } from '../api/mobile-push/job.ts';
import type { TargetKind } from '../api/symbol-config/push.ts';
import type { EventKind } from './subscription/events.ts';
import type { DeferralReason } from '../workflows/intent/contract.ts';
import type { MobileStatus } from '../workflows/mobile-push/contract.ts';
import type { CommandKind, Pool } from '../workflows/subscription/contract.ts';
import type { ListKind } from '../workflows/subscription/rules.ts';
import type { StreamFindingKind } from '../workflows/intent/reader-contract.ts';
import type { PushScope } from '../workflows/symbol-config/contract.ts';

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

/** How an attempt went. `removed`: its token was stale and is deleted. `braked`: nothing was sent. */
type MobileSendResult = 'sent' | 'removed' | 'retry' | 'failed' | 'suspect' | 'braked';

interface CallbackAttributes {
  kind: CallbackKind;
  result: 'acknowledged' | 'refused' | 'timed_out' | 'failed';
}

/** What the probe listener serves. */
type ProbePath = '/healthz' | '/readyz';

/** Of a malformed entry, as far as it could be read. */
interface MalformedAttributes {
  failure_code: string;
  notification_type: string | undefined;
  producer: string | undefined;
}

/** What a malformed entry says it is: its own words could be anything, so unknown ones count as `unknown`. */
export function boundedOrigin(origin: Omit<MalformedAttributes, 'failure_code'>) {
  return {
    notification_type: oneOf(NOTIFICATION_TYPES, origin.notification_type),
    producer: oneOf(PRODUCERS, origin.producer),
  };
}

function oneOf(known: readonly string[], value: string | undefined): string {
  return value !== undefined && known.includes(value) ? value : 'unknown';
}

export function createMetrics(meter: Meter) {
  function counter<Of extends object>(name: string, description: string): (attributes: Of) => void {
    const instrument = meter.createCounter(name, { description });
    return (attributes) => instrument.add(1, attributes as Attributes);
  }
  function adder(name: string, description: string): (amount: number) => void {
    const instrument = meter.createCounter(name, { description });
    return (amount) => instrument.add(amount);
  }
  function amounts<Of extends object>(name: string, description: string) {
    const instrument = meter.createCounter(name, { description });
    return (amount: number, attributes: Of): void => {
      if (amount > 0) instrument.add(amount, attributes as Attributes);
    };
  }
  const intentMalformed = counter<MalformedAttributes>(
    'notification.intent.malformed',
    'Stream entries recorded as malformed intents',
  );
  return {
    intentOutcome: counter<IntentAttributes & { outcome: 'accepted' | 'duplicate' | 'rejected' }>(
      'notification.intent.outcomes',
      'Intents by how they were decided',
    ),
    /** Takes type and producer as the entry has them. */
    intentMalformed: ({ failure_code, ...origin }: MalformedAttributes) =>
      intentMalformed({ failure_code, ...boundedOrigin(origin) }),
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
    mobileJob: counter<{ status: MobileStatus }>(
      'notification.mobile.jobs',
      'Mobile push jobs by how they ended; a replay ends once more',
    ),
    mobileMalformed: counter<{ failure_code: MalformedJobCode }>(
      'notification.mobile.malformed',
      'Stream entries recorded as malformed mobile push jobs',
    ),
    /** Codes are those of firebase-admin and Node, and few of ours. */
    mobileSend: counter<{ result: MobileSendResult; code: string }>(
      'notification.mobile.sends',
      'Attempts to send a mobile push to one device',
    ),
    mobileMaxRetries: counter<{ what: 'send' | 'entry' }>(
      'notification.mobile.max_retries',
      'Sends and stream entries that were given up after their last attempt',
    ),
    mobileEntriesLost: adder(
      'notification.mobile.entries_lost',
      'Stream entries deleted while they were being taken',
    ),
    /** `geo` is one of those that the targets are configured with. */
    symbolPush: counter<{
      kind: TargetKind;
      geo: string;
      result: 'acknowledged' | 'refused' | 'timed_out' | 'failed';
    }>('notification.symbols.pushes', 'Pushes of symbol configuration to a target'),
    symbolRound: counter<{ scope: PushScope; result: 'complete' | 'incomplete' }>(
      'notification.symbols.rounds',
      'Rounds of pushes, complete when every target acknowledged',
    ),
    symbolListEmpty: counter<Record<never, never>>(
      'notification.symbols.empty_lists',
      'Times that no symbol was enabled, and nothing new was pushed',
    ),
    callbackEmission: counter<CallbackAttributes>(
      'notification.callbacks.emissions',
      'First attempts to deliver a callback about an account value',
    ),
    callbackRetry: counter<CallbackAttributes>(
      'notification.callbacks.retries',
      'Further attempts to deliver a callback, replays included',
    ),
    callbackDropped: counter<{ kind: CallbackKind }>(
      'notification.callbacks.dropped',
      'Callbacks that were given up after their last retry',
    ),
    callbackInput: counter<{ type: CallbackInput['type'] }>(
      'notification.callbacks.inputs',
      'Prices and positions taken from the stream',
    ),
    callbackInputMalformed: counter<{ failure_code: MalformedInputCode }>(
      'notification.callbacks.malformed_inputs',
      'Stream entries that are neither prices nor positions',
    ),
    subscriptionWork: amounts<{ kind: ListKind; result: 'done' | 'retry' | 'given_up' }>(
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
    probeRequest: counter<{ path: ProbePath | 'other'; status: number }>(
      'notification.internal_http.requests',
      'Requests to the probe listener',
    ),
  };
}

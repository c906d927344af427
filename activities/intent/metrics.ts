/** How intents are observed: counters, gauges, and the fields by which log lines are found. */
import type { Meter } from '@opentelemetry/api';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Catalog, Channel } from '../../api/intent/catalog.ts';
import { CHANNELS } from '../../api/intent/catalog.ts';
import { given } from '../../api/given.ts';
import { searchableKey } from '../../api/ids.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { DeferralReason, StreamFindingKind } from '../../workflows/intent/contract.ts';
import type { OutcomeKind, SkipReason } from '../../api/intent/outcome.ts';
import type { GaugeRead } from '../metrics.ts';
import { COUNTED_AT_MOST, countersOf, gaugesOfRows, takenUpCounter } from '../metrics.ts';
import { loadOffset, oldestUnprocessedAgeMs, undecided } from '../../api/intent/stream.ts';

interface IntentAttributes {
  notification_type: string;
  producer: string;
  audience_kind: string;
}

interface RouteAttributes {
  notification_type: string;
  channel: Channel;
}

/** Of a malformed entry, as far as it could be read. */
interface MalformedAttributes {
  failure_code: string;
  notification_type: string | undefined;
  producer: string | undefined;
}

/** Recording functions, one per counter. */
export type IntentMetrics = ReturnType<typeof createIntentMetrics>;

export function createIntentMetrics(meter: Meter, catalog: Catalog) {
  const { counter } = countersOf(meter);
  const types = [...catalog.types.keys()];
  const intentMalformed = counter<MalformedAttributes>(
    'notification.intent.malformed',
    'Stream entries recorded as malformed intents',
  );
  return {
    intentOutcome: counter<IntentAttributes & { outcome: 'accepted' | 'duplicate' | 'rejected' }>(
      'notification.intent.outcomes',
      'Intents by how they were decided',
    ),
    /** Takes type and producer as the entry has them: any words, so unknown ones count as `unknown`. */
    intentMalformed: ({ failure_code, notification_type, producer }: MalformedAttributes) =>
      intentMalformed({
        failure_code,
        notification_type: oneOf(types, notification_type),
        producer: oneOf(catalog.producers, producer),
      }),
    userEnrichment: counter<{
      notification_type: string;
      result: 'found' | 'not_found' | 'unusable' | 'failed';
    }>('notification.user_enrichment.attempts', 'Lookups of a recipient in the User Service'),
    unusableRecipient: counter<{ notification_type: string }>(
      'notification.intent.unusable_recipients',
      'Recipients who get no e-mail because the User Service has no usable answer about them',
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
    routeSkipped: counter<RouteAttributes & { reason: SkipReason }>(
      'notification.route.skipped',
      'Routes that were skipped, but for cancelled ones and those of channels that their type does not use',
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
    workTakenUp: takenUpCounter(meter),
    outboundSuspicion: counter<{ stream: string }>(
      'notification.outbound_stream.suspicions',
      'Times that an outbound stream may have lost entries, after which its routes are checked',
    ),
    outboundRestored: counter<{ channel: Channel }>(
      'notification.outbound_stream.restored_entries',
      'Entries that an outbound stream had lost and that were handed off again',
    ),
    outcomeRelayed: counter<{ kind: OutcomeKind }>(
      'notification.outcomes.relayed',
      'Events about intents that were appended to their stream, repeats included',
    ),
  };
}

function oneOf(known: readonly string[], value: string | undefined): string {
  return value !== undefined && known.includes(value) ? value : 'unknown';
}

/** The fields by which log lines of intake and publication are found. */
export const logFieldsOf = (intent: Logged) =>
  given({
    notification_id: intent.notificationId,
    notification_type: intent.notificationType,
    producer: intent.producer,
    audience_kind: intent.audienceKind,
    idempotency_key: searchableKey(intent.idempotencyKey),
    request_id: intent.requestId,
    trace_id: intent.traceId,
  });

type Logged = Pick<Intent, 'notificationId' | 'notificationType' | 'producer' | 'audienceKind'> &
  Pick<Intent, 'idempotencyKey'> & { requestId?: string | null; traceId?: string | null };

export interface GaugeResources {
  db: Pool;
  redis: Redis;
  intentsStream: string;
  /** Outcomes are told: rows that wait for their stream are looked at. */
  tellsOutcomes: boolean;
}

export function intentGauges({ db, redis, intentsStream, tellsOutcomes }: GaugeResources): GaugeRead[] {
  const reads = [
    gaugesOfRows(
      db,
      {
        'notification.intent_acceptance.waiting': {
          description: `Intents that were read and are neither accepted nor refused yet; ${COUNTED_AT_MOST} stands for more`,
        },
        'notification.intent_acceptance.oldest_age_ms': {
          description: 'How long the oldest of them has waited; 0 when none does',
          unit: 'ms',
        },
      },
      READ_ACCEPTANCE,
    ),
    gaugesOfRows(
      db,
      {
        'notification.route_schedule.depth': {
          description: `Routes that wait for an attempt; ${COUNTED_AT_MOST} stands for more`,
        },
        'notification.route_schedule.oldest_age_ms': {
          description: 'How long the oldest due attempt has been due; 0 when none is',
          unit: 'ms',
        },
      },
      READ_SCHEDULE,
      [CHANNELS],
    ),
    {
      gauges: {
        'notification.intent_stream.oldest_unprocessed_age_ms': {
          description: 'Age of the oldest entry that has no row yet; 0 when the stream is drained',
          unit: 'ms',
        },
      },
      async read() {
        const offset = await loadOffset(redis, intentsStream);
        const value = await oldestUnprocessedAgeMs(redis, intentsStream, offset, Date.now());
        return [{ gauge: 'notification.intent_stream.oldest_unprocessed_age_ms', value }];
      },
    },
    gaugesOfRows(
      db,
      {
        'notification.outbound_stream.suspect_age_ms': {
          description:
            'How long an outbound stream has been suspected of a loss that is not repaired; 0 when none is',
          unit: 'ms',
        },
      },
      READ_SUSPECTS,
    ),
    gaugesOfRows(
      db,
      {
        'notification.intent_malformed.rows': {
          description: `Refused entries that are kept until retention; ${COUNTED_AT_MOST} stands for more`,
        },
      },
      READ_MALFORMED_ROWS,
    ),
  ];
  const outcomes = gaugesOfRows(
    db,
    {
      'notification.outcomes.oldest_waiting_age_ms': {
        description: 'How long the oldest event that is not in its stream yet has waited; 0 when none does',
        unit: 'ms',
      },
    },
    READ_OUTCOMES,
  );
  return tellsOutcomes ? [...reads, outcomes] : reads;
}

/**
 * Those that are tried: a row without a recent change belongs to an intent that an operator has terminated. Of too many
 * to count, those are taken whose last try was first: they have waited the longest, because waits grow.
 */
const READ_ACCEPTANCE = {
  name: 'read_acceptance',
  text: `
    SELECT count(*)::float8 AS "notification.intent_acceptance.waiting",
           ${ageOf('min(read_at)')} AS "notification.intent_acceptance.oldest_age_ms"
      FROM (SELECT read_at FROM ${undecided(COUNTED_AT_MOST)} LIMIT ${COUNTED_AT_MOST}) AS open`,
};

/** Each refused entry has a row until retention, because publishing it again needs the row. */
const READ_MALFORMED_ROWS = {
  name: 'read_malformed_rows',
  text: `
    SELECT count(*)::float8 AS "notification.intent_malformed.rows"
      FROM (SELECT recorded_at FROM notification.malformed_intents ORDER BY recorded_at LIMIT ${COUNTED_AT_MOST}) AS first`,
};

const READ_OUTCOMES = {
  name: 'read_oldest_outcome',
  text: `
    SELECT ${ageOf('min(written_at)')} AS "notification.outcomes.oldest_waiting_age_ms"
      FROM (SELECT written_at FROM notification.outcomes WHERE relayed_at IS NULL ORDER BY outcome_id LIMIT 1) AS oldest`,
};

const READ_SUSPECTS = {
  name: 'read_suspects',
  text: `
    SELECT ${ageOf('min(suspect_since)')} AS "notification.outbound_stream.suspect_age_ms"
      FROM notification.outbound_streams`,
};

/** $1 channels. */
const READ_SCHEDULE = {
  name: 'read_schedule',
  text: `
    SELECT asked.channel, depth AS "notification.route_schedule.depth",
           ${ageOf('oldest')} AS "notification.route_schedule.oldest_age_ms"
      FROM unnest($1::text[]) AS asked (channel)
     CROSS JOIN LATERAL (
       SELECT count(*)::float8 AS depth, min(next_attempt_at) AS oldest
         FROM (SELECT next_attempt_at
                 FROM notification.routes
                WHERE routes.channel = asked.channel AND next_attempt_at IS NOT NULL
                ORDER BY next_attempt_at
                LIMIT ${COUNTED_AT_MOST}) AS first
     ) AS waiting`,
};

/**
 * SQL: how long ago a time is, ms; 0 for none, and for one to come. `float8` because the driver hands out 64-bit integers as
 * text.
 */
function ageOf(time: string): string {
  return `coalesce(greatest(0, extract(epoch FROM clock_timestamp() - ${time}) * 1000), 0)::float8`;
}

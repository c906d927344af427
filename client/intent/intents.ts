/**
 * Intents that have no record: those that wait to be accepted, with what a cancellation and a release reach, and entries that
 * were refused.
 */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { mendEntry, unknownFieldOf } from '../../api/intent/mending.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import type { Grouped, Listing, Page, Span } from '../lists.ts';
import { conditionsOf, listOf, rowOf, spanOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

type Resources = Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>;

export interface WaitingIntent {
  notificationId: string;
  type: string;
  producer: string;
  idempotencyKey: string;
  /** When its entry was read. */
  waitingSince: Date;
  /** Attempts so far, beside the first try. */
  attempt: number;
  /** What the last attempt that said anything met; null before the first one. */
  reason: string | null;
  link?: string;
}

export const waitingOperations = (resources: Resources) => ({
  /** Intents that wait to be accepted or refused, longest first. */
  waiting: (filter: { limit?: number } = {}): Promise<Page<WaitingIntent>> =>
    listOf<Omit<WaitingIntent, 'link'>, object, WaitingIntent>(resources.db, WAITING, filter, (row) => ({
      ...row,
      ...linkField(resources, notificationWorkflowId(row.notificationId)),
    })),
});

/** Why an open intent waits, as SQL. */
export const WHY_OPEN = `CASE WHEN due_at IS NULL THEN reason
              ELSE 'it waits until ' || to_char(due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END`;

const WAITING: Listing<object> = {
  columns: `notification_id AS "notificationId", notification_type AS type, producer,
         idempotency_key AS "idempotencyKey", read_at AS "waitingSince", attempts AS attempt, ${WHY_OPEN} AS reason`,
  from: 'notification.intents',
  order: 'due_at IS NOT NULL, intents.reason IS NULL, read_at, notification_id',
  always: "status = 'open'",
};

/** Which notifications are to be cancelled; all given filters must hold. Those without an open route are left alone. */
export interface OpenFilter {
  notificationId?: string;
  type?: string;
  producer?: string;
  /** Bounds of the time of acceptance; of one that is not accepted, of its first trouble or of its entry. Both included. */
  since?: Date;
  until?: Date;
}

export interface OpenGroup extends Span {
  type: string;
  producer: string;
  /** `under_way`: accepted, or tried in vain. `not_begun`: read, and waiting for its turn. */
  state: 'under_way' | 'not_begun';
  notifications: number;
}

/** Accepted ones with an open route, and those that are not decided; each once, which is what UNION does. */
const OPEN = `(
           SELECT notification_id, notification_type, producer, accepted_at AS since, 'under_way' AS state
             FROM notification.routes
             JOIN notification.records USING (notification_id)
            WHERE next_attempt_at IS NOT NULL
            UNION
           SELECT notification_id, notification_type, producer, read_at,
                  CASE WHEN reason IS NULL THEN 'not_begun' ELSE 'under_way' END
             FROM notification.intents
            WHERE status = 'open') AS open`;

/** The notifications that an operation cancels. */
export const chooseOpen = (filter: OpenFilter): Grouped => ({
  columns: ['notification_id'],
  from: OPEN,
  at: 'since',
  conditions: conditionsOf(
    {
      filters: {
        notificationId: 'notification_id = ?',
        ...{ type: 'notification_type = ?', producer: 'producer = ?' },
        ...spanOf('since'),
      },
    },
    filter,
  ),
  groups: { type: 'notification_type', producer: 'producer', state: 'state' },
  counted: 'notifications',
});

// --- Entries that were refused -----------------------------------------------------------------------------------------

export interface MalformedFilter {
  entryId?: string;
  code?: string;
  producer?: string;
  type?: string;
  /** Bounds of the time of recording, both included. */
  since?: Date;
  until?: Date;
}

interface MalformedRow {
  entryId: string;
  code: string;
  message: string;
  /** As the entry gave them; null when it gave none. */
  type: string | null;
  producer: string | null;
  idempotencyKey: string | null;
  recordedAt: Date;
}

/** The link leads to the notification's workflow, for those that were refused only after it was started. */
type MalformedSummary = Given<MalformedRow> & { link?: string };

/** Refused entries of one kind. */
export interface RefusedGroup extends Span {
  code: string;
  /** As the entries gave them; null when they gave none. */
  type: string | null;
  producer: string | null;
  entries: number;
}

export interface MalformedEntry extends MalformedSummary {
  /** The fields of the entry, cut where they are long. */
  rawFields: Record<string, string>;
}

/** Refused by the notification's workflow; all others are refused by the reader and have none. */
const REFUSED_BY_WORKFLOW = ['idempotency_conflict', 'recipient_not_found'];

export function malformedOperations(resources: Resources & Pick<OperatorResources, 'catalog'>) {
  return {
    /** Malformed entries, newest first. */
    list: (filter: MalformedFilter & { limit?: number } = {}): Promise<Page<MalformedSummary>> =>
      listOf<MalformedRow, MalformedFilter, MalformedSummary>(resources.db, MALFORMED, filter, (row) =>
        summaryOf(resources, row),
      ),

    /** @throws NotFoundError when no such entry was recorded, or retention has removed it. */
    show,

    /**
     * @returns the fields with which an entry that was refused would be published again.
     * @throws NotFoundError; OperationFailedError when the service would refuse them as well.
     */
    correct,
  };

  async function show(entryId: string): Promise<MalformedEntry> {
    const entry = await findMalformed(resources, entryId);
    if (!entry) throw new NotFoundError(`no malformed intent ${entryId} is recorded`);
    return entry;
  }

  async function correct(entryId: string, correction: Correction = {}): Promise<Record<string, string>> {
    const entry = await show(entryId);
    const unknown = unknownFieldOf(correction);
    if (unknown !== undefined) throw new OperationFailedError(unknown);
    const corrected = mendEntry(resources.catalog, entryId, entry.rawFields, correction);
    if ('fields' in corrected) return corrected.fields;
    throw new OperationFailedError(corrected.reason);
  }
}

export async function findMalformed(
  resources: Resources,
  entryId: string,
): Promise<MalformedEntry | undefined> {
  const key = [MALFORMED, 'stream_entry_id', entryId, ', raw_fields AS "rawFields"'] as const;
  const row = await rowOf<MalformedRow & Pick<MalformedEntry, 'rawFields'>>(resources.db, ...key);
  return row && { ...summaryOf(resources, row), rawFields: row.rawFields };
}

const summaryOf = (resources: Resources, row: MalformedRow): MalformedSummary => ({
  ...given(row),
  ...(REFUSED_BY_WORKFLOW.includes(row.code)
    ? linkField(resources, notificationWorkflowId(row.entryId))
    : {}),
});

const MALFORMED: Listing<MalformedFilter> = {
  columns: `stream_entry_id AS "entryId", failure_code AS code, failure_message AS message, notification_type AS type,
         producer, idempotency_key AS "idempotencyKey", recorded_at AS "recordedAt"`,
  from: 'notification.malformed_intents',
  order: 'recorded_at DESC, stream_entry_id DESC',
  filters: {
    ...{ entryId: 'stream_entry_id = ?', code: 'failure_code = ?' },
    ...{ producer: 'producer = ?', type: 'notification_type = ?' },
    ...spanOf('recorded_at'),
  },
};

/** The entries that an operation publishes again. */
export const chooseMalformed = (filter: MalformedFilter): Grouped => ({
  columns: ['notification_id'],
  from: `(SELECT *, stream_entry_id AS notification_id FROM notification.malformed_intents) AS malformed`,
  at: 'recorded_at',
  conditions: conditionsOf(MALFORMED, filter),
  groups: { code: 'failure_code', type: 'notification_type', producer: 'producer' },
  counted: 'entries',
});

/** Routes of one channel, or of one producer. */
export interface HeldFilter {
  channel?: string;
  producer?: string;
}

/** Open routes of one channel or producer, counted. */
export interface HeldGroup extends Span {
  channel: string;
  producer: string;
  routes: number;
}

/** The routes that an operation releases. */
export const chooseHeld = (filter: HeldFilter): Grouped => ({
  columns: ['notification_id', 'route_id'],
  from: 'notification.routes JOIN notification.records USING (notification_id)',
  at: 'next_attempt_at',
  conditions: conditionsOf(
    {
      filters: { channel: 'channel = ?', producer: 'producer = ?' },
      always: 'next_attempt_at IS NOT NULL',
    },
    filter,
  ),
  groups: { channel: 'channel', producer: 'producer' },
  counted: 'routes',
});

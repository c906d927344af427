/** Stream entries that could not become a notification. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { mendEntry, unknownFieldOf } from '../../api/intent/mending.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import type { Grouped, Listing, Page, Span, WithoutNulls } from '../lists.ts';
import { conditionsOf, listOf, rowOf, spanOf, withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

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
type MalformedSummary = WithoutNulls<MalformedRow> & { link?: string };

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

type Resources = Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>;

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
  ...withoutNulls(row),
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
  given: conditionsOf(MALFORMED, filter),
  groups: { code: 'failure_code', type: 'notification_type', producer: 'producer' },
  counted: 'entries',
});

/** Stream entries that could not become a notification. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { mendEntry, unknownFieldOf } from '../../api/intent/mending.ts';
import type { Requester } from '../actions.ts';
import { byAuthor } from '../actions.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import type { Candidate, Conditions, Page } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf, withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

export interface MalformedFilter {
  code?: string;
  producer?: string;
  type?: string;
  /** Bounds of the time of recording, both included. */
  since?: Date;
  until?: Date;
}

export interface MalformedSummary {
  entryId: string;
  code: string;
  message: string;
  /** As the entry gave them; absent when it gave none. */
  type?: string;
  producer?: string;
  idempotencyKey?: string;
  recordedAt: Date;
  /** The notification's workflow in the Web UI, for those that were refused only after it was started. */
  link?: string;
}

export interface MalformedEntry extends MalformedSummary {
  /** The fields of the entry, cut where they are long. */
  rawFields: Record<string, string>;
}

/** Refused by the notification's workflow; all others are refused by the reader and have none. */
const REFUSED_BY_WORKFLOW = ['idempotency_conflict', 'recipient_not_found'];

type Resources = Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>;

export function malformedOperations(
  resources: Resources & Pick<OperatorResources, 'redis' | 'intentsStream' | 'catalog'>,
) {
  const { db, redis, intentsStream } = resources;

  return {
    /** Malformed entries, newest first. */
    async list({ limit = DEFAULT_LIMIT, ...filter }: MalformedFilter & { limit?: number } = {}): Promise<
      Page<MalformedSummary>
    > {
      const given = conditions(malformedConditions(filter));
      const { rows } = await db.query<MalformedRow>(LIST_MALFORMED(given), [...given.values, limit + 1]);
      return pageOf(rows, limit, (row) => summaryOf(resources, row));
    },

    /** @throws NotFoundError when no such entry was recorded, or retention has removed it. */
    async show(entryId: string): Promise<MalformedEntry> {
      const entry = await findMalformed(resources, entryId);
      if (!entry) throw new NotFoundError(`no malformed intent ${entryId} is recorded`);
      return entry;
    },

    /**
     * @returns the fields with which an entry that was refused would be published again.
     * @throws NotFoundError; OperationFailedError when the service would refuse them as well.
     */
    correct,

    /**
     * Publishes an entry again that was refused. Doing so twice is harmless: the key is the same.
     *
     * @returns the id of the new entry.
     * @throws as `correct`, and the error of Redis.
     */
    async republish(
      entryId: string,
      correction: Correction = {},
      { requestedBy }: Requester = {},
    ): Promise<string> {
      const fields = await correct(entryId, correction);
      const append = async () => {
        const newId = await redis.xadd(intentsStream, '*', ...Object.entries(fields).flat());
        if (newId === null) throw new Error(`Redis appended nothing to ${intentsStream}`);
        return newId;
      };
      const action = { action: 'malformed republish', target: entryId, requestedBy };
      return byAuthor(resources, action, append, (newId) => ({ detail: `as ${newId}` }));
    },
  };

  async function correct(entryId: string, correction: Correction = {}): Promise<Record<string, string>> {
    const entry = await findMalformed(resources, entryId);
    if (!entry) throw new NotFoundError(`no malformed intent ${entryId} is recorded`);
    const unknown = unknownFieldOf(correction);
    if (unknown !== undefined) throw new OperationFailedError(unknown);
    const corrected = mendEntry(resources.catalog, entryId, entry.rawFields, correction);
    if ('fields' in corrected) return corrected.fields;
    throw new OperationFailedError(corrected.reason);
  }
}

export const malformedConditions = (filter: MalformedFilter): Candidate[] => [
  ['failure_code = ?', filter.code],
  ['producer = ?', filter.producer],
  ['notification_type = ?', filter.type],
  ['recorded_at >= ?', filter.since],
  ['recorded_at <= ?', filter.until],
];

export async function findMalformed(
  resources: Resources,
  entryId: string,
): Promise<MalformedEntry | undefined> {
  const { rows } = await resources.db.query<MalformedRow & Pick<MalformedEntry, 'rawFields'>>(
    SHOW_MALFORMED,
    [entryId],
  );
  const [row] = rows;
  return row && { ...summaryOf(resources, row), rawFields: row.rawFields };
}

interface MalformedRow {
  entryId: string;
  code: string;
  message: string;
  type: string | null;
  producer: string | null;
  idempotencyKey: string | null;
  recordedAt: Date;
}

const summaryOf = (resources: Resources, row: MalformedRow): MalformedSummary => ({
  ...withoutNulls(row),
  ...(REFUSED_BY_WORKFLOW.includes(row.code)
    ? linkField(resources, notificationWorkflowId(row.entryId))
    : {}),
});

const COLUMNS = `stream_entry_id AS "entryId", failure_code AS code, failure_message AS message, notification_type AS type,
         producer, idempotency_key AS "idempotencyKey", recorded_at AS "recordedAt"`;

const LIST_MALFORMED = ({ where, next }: Conditions) => `
  SELECT ${COLUMNS}
    FROM notification.malformed_intents
   ${where}
   ORDER BY recorded_at DESC, stream_entry_id DESC
   LIMIT ${next}`;

const SHOW_MALFORMED = `
  SELECT ${COLUMNS}, raw_fields AS "rawFields"
    FROM notification.malformed_intents
   WHERE stream_entry_id = $1`;

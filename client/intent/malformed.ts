/** Stream entries that could not become a notification. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { ENVELOPE_FIELDS, entryFieldsOf, parseIntent } from '../../api/intent/entry.ts';
import { isShownOnly } from '../../api/text.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import type { Conditions, Page } from '../lists.ts';
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
  limit?: number;
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

/** How an entry is mended that was refused. */
export interface Mending {
  /** Fields of the envelope that get another value; an empty one leaves the field out. */
  set?: Record<string, string>;
  /** A key of its own, which is the same each time: what the key of the entry stands for has been decided otherwise. */
  newKey?: boolean;
}

export function malformedOperations(
  resources: Resources & Pick<OperatorResources, 'redis' | 'intentsStream'>,
) {
  const { db, redis, intentsStream } = resources;

  return {
    /** Malformed entries, newest first. */
    async list({ limit = DEFAULT_LIMIT, ...filter }: MalformedFilter = {}): Promise<Page<MalformedSummary>> {
      const given = conditions([
        ['failure_code = ?', filter.code],
        ['producer = ?', filter.producer],
        ['notification_type = ?', filter.type],
        ['recorded_at >= ?', filter.since],
        ['recorded_at <= ?', filter.until],
      ]);
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
    mend,

    /**
     * Publishes an entry again that was refused. Doing so twice is harmless: the key is the same.
     *
     * @returns the id of the new entry.
     * @throws as `mend`, and what Redis fails with.
     */
    async republish(entryId: string, mending: Mending = {}): Promise<string> {
      const fields = await mend(entryId, mending);
      const newId = await redis.xadd(intentsStream, '*', ...Object.entries(fields).flat());
      if (newId === null) throw new Error(`Redis appended nothing to ${intentsStream}`);
      return newId;
    },
  };

  async function mend(entryId: string, { set = {}, newKey }: Mending = {}): Promise<Record<string, string>> {
    const entry = await findMalformed(resources, entryId);
    if (!entry) throw new NotFoundError(`no malformed intent ${entryId} is recorded`);
    const unknown = Object.keys(set).find((name) => !ENVELOPE_FIELDS.includes(name));
    if (unknown !== undefined) {
      throw new OperationFailedError(
        `${unknown} is no field of an intent; those are ${ENVELOPE_FIELDS.join(', ')}`,
      );
    }
    const given = Object.entries({ ...entry.rawFields, ...set }).filter(
      ([name, value]) => ENVELOPE_FIELDS.includes(name) && value !== '',
    );
    const spoilt = given.find(([name, value]) => !Object.hasOwn(set, name) && isShownOnly(value));
    if (spoilt) {
      throw new OperationFailedError(
        `${spoilt[0]} was not kept as it came: give it anew with --set ${spoilt[0]}=…`,
      );
    }
    const fields = Object.fromEntries(given);
    if (newKey) fields['idempotency_key'] = `${fields['idempotency_key'] ?? ''}/republished/${entryId}`;
    const parsed = parseIntent('0-0', entryFieldsOf(fields));
    if (parsed.ok) return fields;
    const { failureCode, failureMessage } = parsed.malformed;
    throw new OperationFailedError(`the service would refuse it again: ${failureCode}, ${failureMessage}`);
  }
}

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

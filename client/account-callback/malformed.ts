/** Stream entries that are neither prices nor positions. */
import { NotFoundError } from '../errors.ts';
import type { Conditions, Page } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';

export interface MalformedInputFilter {
  code?: string;
  /** Bounds of the time of recording, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

export interface MalformedInputSummary {
  entryId: string;
  code: string;
  message: string;
  recordedAt: Date;
}

export interface MalformedInputEntry extends MalformedInputSummary {
  /** The fields of the entry, cut where they are long. */
  rawFields: Record<string, string>;
}

export function malformedInputOperations({ db }: Pick<OperatorResources, 'db'>) {
  return {
    /** Malformed entries, newest first. */
    async list({ limit = DEFAULT_LIMIT, ...filter }: MalformedInputFilter = {}): Promise<
      Page<MalformedInputSummary>
    > {
      const given = conditions([
        ['failure_code = ?', filter.code],
        ['recorded_at >= ?', filter.since],
        ['recorded_at <= ?', filter.until],
      ]);
      const { rows } = await db.query<MalformedInputSummary>(LIST(given), [...given.values, limit + 1]);
      return pageOf(rows, limit, (row) => row);
    },

    /** @throws NotFoundError when no such entry was recorded, or retention has removed it. */
    async show(entryId: string): Promise<MalformedInputEntry> {
      const { rows } = await db.query<MalformedInputEntry>(SHOW, [entryId]);
      if (!rows[0]) throw new NotFoundError(`no malformed account input ${entryId} is recorded`);
      return rows[0];
    },
  };
}

const COLUMNS = `stream_entry_id AS "entryId", failure_code AS code, failure_message AS message,
         recorded_at AS "recordedAt"`;

const LIST = ({ where, next }: Conditions) => `
  SELECT ${COLUMNS}
    FROM notification.malformed_account_inputs
   ${where}
   ORDER BY recorded_at DESC, stream_entry_id DESC
   LIMIT ${next}`;

const SHOW = `
  SELECT ${COLUMNS}, raw_fields AS "rawFields"
    FROM notification.malformed_account_inputs
   WHERE stream_entry_id = $1`;

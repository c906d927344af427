/** Stream entries that are neither prices nor positions. */
import { NotFoundError } from '../errors.ts';
import type { Listing, Page } from '../lists.ts';
import { listOf, rowOf, spanOf } from '../lists.ts';
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

export const malformedInputOperations = ({ db }: Pick<OperatorResources, 'db'>) => ({
  /** Malformed entries, newest first. */
  list: (filter: MalformedInputFilter = {}): Promise<Page<MalformedInputSummary>> =>
    listOf<MalformedInputSummary, MalformedInputFilter>(db, MALFORMED, filter),

  /** @throws NotFoundError when no such entry was recorded, or retention has removed it. */
  async show(entryId: string): Promise<MalformedInputEntry> {
    const key = [MALFORMED, 'stream_entry_id', entryId, ', raw_fields AS "rawFields"'] as const;
    const entry = await rowOf<MalformedInputEntry>(db, ...key);
    if (!entry) throw new NotFoundError(`no malformed account input ${entryId} is recorded`);
    return entry;
  },
});

const MALFORMED: Listing<MalformedInputFilter> = {
  columns: `stream_entry_id AS "entryId", failure_code AS code, failure_message AS message,
            recorded_at AS "recordedAt"`,
  from: 'notification.malformed_account_inputs',
  order: 'recorded_at DESC, stream_entry_id DESC',
  filters: { code: 'failure_code = ?', ...spanOf('recorded_at') },
};

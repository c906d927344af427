/** What the reader begins by one workflow each: of a read, an entry by itself, or a slice of intents. Pure. */
import type { Intent, ParsedIntent } from '../../api/intent/entry.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import type { EntrySize } from '../../api/text.ts';
import { MAX_RECIPIENTS_ACCEPTED_LOCALLY } from '../../workflows/intent/contract.ts';

/**
 * Bytes of the entries of a slice. As JSON within JSON they are twice as many at worst, and Temporal takes 2 MiB at
 * once.
 */
const MAX_SLICE_BYTES = 512 * 1024;
/** Recipients of a slice: their lookups are made before anybody in it gets anything. */
const MAX_SLICE_RECIPIENTS = 1_000;

/** In the order of the stream; one entry, or several intents of one producer. */
export type Unit = ParsedIntent[];

export interface ReadEntry {
  parsed: ParsedIntent;
  size: EntrySize;
}

interface UnitOptions {
  intentsPerWorkflow: number;
  /** Entries up to this id were read before. */
  readBefore: string;
}

/**
 * Intents of different producers are kept apart, so that Temporal serves those in turn. A large audience has a workflow of
 * its own, and so has what was read before: somebody may have cancelled it.
 *
 * @returns units by their first entry, in the order of the stream.
 */
export function unitsOf(
  entries: readonly ReadEntry[],
  { intentsPerWorkflow, readBefore }: UnitOptions,
): Unit[] {
  const units: Unit[] = [];
  const growing = new Map<string, { unit: Unit; bytes: number; recipients: number }>();
  for (const { parsed, size } of entries) {
    if (!parsed.ok || intentsPerWorkflow === 1 || !isSmallAndNew(parsed.intent, readBefore)) {
      units.push([parsed]);
      // What comes after it must not begin before it: two of them may have one key.
      if (parsed.ok) growing.delete(parsed.intent.producer);
      continue;
    }
    const { producer, recipientUserIds } = parsed.intent;
    const slice = growing.get(producer);
    const bytes = (slice?.bytes ?? 0) + size.bytes;
    const recipients = (slice?.recipients ?? 0) + recipientUserIds.length;
    const fits = bytes <= MAX_SLICE_BYTES && recipients <= MAX_SLICE_RECIPIENTS;
    if (slice && fits && slice.unit.length < intentsPerWorkflow) {
      slice.unit.push(parsed);
      Object.assign(slice, { bytes, recipients });
      continue;
    }
    const unit = [parsed];
    units.push(unit);
    growing.set(producer, { unit, bytes: size.bytes, recipients: recipientUserIds.length });
  }
  return units;
}

const isSmallAndNew = ({ notificationId, recipientUserIds }: Intent, readBefore: string): boolean =>
  recipientUserIds.length <= MAX_RECIPIENTS_ACCEPTED_LOCALLY &&
  compareEntryIds(notificationId, readBefore) > 0;

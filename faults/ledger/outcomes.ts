/**
 * The judge of outcomes: of every entry that a producer was told is in the stream there is one end, the same however often
 * it is repeated, last of its events, and not before it was true.
 */
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';

/** An event as its reader got it. */
export interface ToldOutcome {
  entryId: string;
  fields: Readonly<Record<string, string>>;
  /** Whether rows said the same when it was read; absent when they could not be asked. */
  wasTrue?: boolean;
}

export interface OutcomeCase {
  /** Each entry of the stream once, oldest first. */
  told: readonly ToldOutcome[];
  /** Entries of the intent stream that a producer was told of, and that are there. */
  entries: readonly string[];
  /** Of these, those that PostgreSQL has a record of, with how many routes. */
  routes: ReadonlyMap<string, number>;
  /** Refused: failure code by entry. */
  refusals: ReadonlyMap<string, string>;
  /** A store was put back: an intent may have ended again in another way. */
  mayRepeat: boolean;
}

const OF_ACCEPTED = ['settled', 'cancelled'];
const ENDS = [...OF_ACCEPTED, 'duplicate', 'conflict', 'malformed'];

export function judgeOutcomes({ told, entries, routes, refusals, mayRepeat }: OutcomeCase): Verdict {
  const verdict = noVerdict();
  const byIntent = Map.groupBy(told, ({ fields }) => fields['notification_id'] ?? '');
  const lateMs: number[] = [];
  for (const { fields, entryId, wasTrue } of told) {
    if (wasTrue === false) verdict.wrong.push(`${nameOf(fields)} was told before it was true`);
    if (Object.values(fields).some((value) => value.includes('@')))
      verdict.wrong.push(`${nameOf(fields)} holds an address`);
    if (ENDS.includes(fields['kind']!))
      lateMs.push(Number(entryId.split('-')[0]) - Number(fields['occurred_at_ms']));
  }
  for (const [eventId, same] of Map.groupBy(told, ({ fields }) => fields['event_id'] ?? '')) {
    verdict.repeated += same.length - 1;
    const kinds = new Set(same.map(({ fields }) => fields['kind']));
    if (kinds.size > 1 && !mayRepeat) verdict.wrong.push(`${eventId} is of ${[...kinds].join(' and ')}`);
  }
  for (const id of entries) judgeIntent(id, byIntent.get(id) ?? []);
  const known = new Set(entries);
  // Ids that are not those of entries are of entries whose id was given again.
  const strange = [...byIntent.keys()].filter((id) => !id.includes('/') && !known.has(id));
  if (!mayRepeat) verdict.wrong.push(...strange.map((id) => `${id} was told of, and is no entry`));
  lateMs.sort((a, b) => a - b);
  verdict.figures = {
    events: told.length,
    ends: lateMs.length,
    'end late by ms, median': lateMs[Math.floor(lateMs.length / 2)] ?? 0,
    'end late by ms, p99': lateMs[Math.floor(lateMs.length * 0.99)] ?? 0,
    unchecked: told.filter(({ wasTrue }) => wasTrue === undefined).length,
  };
  return verdict;

  function judgeIntent(id: string, events: readonly ToldOutcome[]): void {
    const ends = events.filter(({ fields }) => ENDS.includes(fields['kind']!));
    const ids = new Set(ends.map(({ fields }) => fields['event_id']));
    if (ids.size === 0) return void verdict.lost.push(`nothing was told of the end of ${id}`);
    if (ids.size > 1) verdict.doubled.push(`${id} ended as ${[...ids].join(' and ')}`);
    const { kind, ...fields } = ends.at(-1)!.fields;
    const code = refusals.get(id);
    const due = routes.has(id)
      ? OF_ACCEPTED
      : code === undefined
        ? ['duplicate']
        : [code === 'idempotency_conflict' ? 'conflict' : 'malformed'];
    if (!due.includes(kind!) && !mayRepeat)
      verdict.wrong.push(`${id} ended as ${kind}, not as ${due.join(' or ')}`);
    if (!routes.has(id) || mayRepeat) return;
    const counted = ['published', 'skipped', 'dead_lettered'].map((name) => Number(fields[name]));
    if (counted.reduce((sum, count) => sum + count, 0) !== routes.get(id))
      verdict.wrong.push(`the end of ${id} counts ${counted.join(' + ')} of ${routes.get(id)} routes`);
    const first = firstOfEach(events);
    const end = first.findIndex((event) => ENDS.includes(event['kind']!));
    // What a replay has done comes after the end, or between, and that a dead letter was found to be published.
    const late = first
      .slice(end + 1)
      .filter(({ kind, generation }) => kind === 'accepted' || (kind !== 'recovered' && generation === '0'));
    if (first[0]!['kind'] !== 'accepted' || late.length > 0)
      verdict.wrong.push(`${id} was told in the order ${first.map((event) => event['kind']).join(', ')}`);
  }
}

const nameOf = (fields: ToldOutcome['fields']): string => `${fields['kind']} of ${fields['notification_id']}`;

function firstOfEach(events: readonly ToldOutcome[]): ToldOutcome['fields'][] {
  const seen = new Map<string, ToldOutcome['fields']>();
  for (const { fields } of events) if (!seen.has(fields['event_id']!)) seen.set(fields['event_id']!, fields);
  return [...seen.values()];
}

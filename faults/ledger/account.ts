/**
 * What producers were told of what they put in. Their word is the truth that everything else is held against: what a
 * stream holds in the end may be less than what was acknowledged, and then something is lost.
 */

export type Told =
  /** The server has it, as this entry. */
  | { kind: 'acknowledged'; id: string }
  /** The server says that it has not: out of memory, loading, read-only. */
  | { kind: 'refused'; reason: string }
  /** No answer came: it may be there or not. */
  | { kind: 'unknown' };

export interface Attempt {
  /** Milliseconds since the epoch: before it was sent, and when it was answered or given up. */
  beganAt: number;
  toldAt: number;
  told: Told;
}

/** Something that a producer wants to be there, and tries to put in until it is told that it is. */
export interface Posting<Content> {
  content: Content;
  attempts: Attempt[];
}

/** The ids under which the server has acknowledged a posting; more than one when it was put in again after a loss. */
export const acknowledgedIds = ({ attempts }: Posting<unknown>): string[] =>
  attempts.flatMap(({ told }) => (told.kind === 'acknowledged' ? [told.id] : []));

/** Attempts with an unknown result: the server may have them or not. */
export const unknownAttempts = ({ attempts }: Posting<unknown>): number =>
  attempts.filter(({ told }) => told.kind === 'unknown').length;

/** How often producers were told what, for the report. */
export function toldCounts(postings: readonly Posting<unknown>[]): Record<Told['kind'], number> {
  const counts = { acknowledged: 0, refused: 0, unknown: 0 };
  for (const { attempts } of postings) for (const { told } of attempts) counts[told.kind] += 1;
  return counts;
}

/** What a judge of the ledger says about one kind of work. */

export interface Verdict {
  /** For the report. */
  figures: Record<string, number>;
  /** Acknowledged to a producer, and never delivered. */
  lost: string[];
  /** Delivered to a user who is no recipient, or to an address of another user. */
  misdirected: string[];
  /** It arrived with other content than was sent. */
  altered: string[];
  /** It arrived twice: with other ids, or with equal ones and nothing that excuses it. */
  doubled: string[];
  /** Whatever else does not agree. */
  wrong: string[];
  /** Came again with an equal id, after a store had lost its record: the recipient drops it. */
  repeated: number;
  /** How long doubles were excused for something that a fault can have taken away, ms. */
  excusedMs: number;
}

export const noVerdict = (): Verdict => ({
  figures: {},
  lost: [],
  misdirected: [],
  altered: [],
  doubled: [],
  wrong: [],
  repeated: 0,
  excusedMs: 0,
});

/** The lists of a verdict, any entry of which makes a run bad. */
export const CHARGES = ['lost', 'misdirected', 'altered', 'doubled', 'wrong'] as const;

export const isClean = (verdict: Verdict): boolean => CHARGES.every((charge) => verdict[charge].length === 0);

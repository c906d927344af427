/**
 * What a measurement is: a module that declares its rows and finds their values. A further feature gets its rows by a
 * module in the list of bench/main.ts.
 */
import type { Bench } from './environment.ts';

/** A bound that the value of a row should keep. */
export type Target = { atMost: number } | { atLeast: number };

export interface RowSpec {
  /** Unique; begins with the name of its measurement: `latency.child.p50`. */
  name: string;
  meaning: string;
  /** `/s`, `ms`, `MB`; empty for ratios and counts. */
  unit: string;
  target?: Target;
}

/** The value that was found for a row. */
export interface Finding {
  /** Name of the row. */
  row: string;
  value: number;
  /** The same divided by the ceiling tree of the same rounds. */
  ofCeiling?: number;
  /** The value of each round, of which `value` is the median. */
  rounds?: readonly number[];
  /** Whatever explains the value; in the JSON file only. */
  details?: unknown;
}

export interface Measurement {
  name: string;
  meaning: string;
  rows: readonly RowSpec[];
  /** Whether `--quick` has it. */
  isQuick: boolean;
  /**
   * @param isShown whether a row is asked for: what only others need may be left out.
   * @returns at most one finding for each row; a row without one could not be measured on this machine.
   */
  run(bench: Bench, isShown: (row: string) => boolean): Promise<Finding[]>;
}

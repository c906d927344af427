/** One small wrong change to the product, and the tests that should notice it. */
import type { Change } from './places.ts';
import { changed } from './places.ts';

/** The harm that a mutant would do. */
export const WRONGS = [
  'wrong person',
  'wrong payload',
  'doubled',
  'lost',
  'leaked',
  'stuck',
  'wrong budget',
  'wrong order',
  'wrong time',
  'security',
] as const;
export type Wrong = (typeof WRONGS)[number];

export type Tier = 'unit' | 'workflow' | 'service';

export interface Suite {
  tier: Tier;
  /** From the top of the checkout. */
  file: string;
  /** The beginning of titles, or any part of them; without it the whole file runs. */
  test?: string;
}

export interface Mutant {
  /** Written by hand: `<kind>-<what is changed>`. Made by program: see generated.ts. */
  id: string;
  /** From the top of the checkout. */
  file: string;
  /** @throws Error when the place of the change is not found. */
  change: (source: string) => string;
  wrong: Wrong | 'generated';
  /** What the product does then. */
  what: string;
  suite: Suite;
  /** Why no test has to notice it. */
  survives?: string;
}

/** A mutant as `list/` has it. */
export interface HandWritten extends Omit<Mutant, 'change'>, Change {
  wrong: Wrong;
}

export const unit = (file: string, test?: string): Suite => ({
  tier: 'unit',
  file: `test/${file}.unit.test.ts`,
  ...(test === undefined ? {} : { test }),
});

export const workflow = (file: string, test?: string): Suite => ({
  tier: 'workflow',
  file: `test/${file}.workflow.test.ts`,
  ...(test === undefined ? {} : { test }),
});

export const service = (file: string, test?: string): Suite => ({
  tier: 'service',
  file: `test/${file}.service.test.ts`,
  ...(test === undefined ? {} : { test }),
});

export const nameOf = ({ file, test }: Suite): string => (test === undefined ? file : `${file} -t '${test}'`);

export const mutantOf = (mutant: HandWritten): Mutant => ({
  ...mutant,
  change(source) {
    try {
      return changed(mutant.file, source, mutant);
    } catch (error) {
      throw new Error(`${mutant.id}: ${mutant.file}: ${(error as Error).message}`, { cause: error });
    }
  },
});

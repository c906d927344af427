/** One small wrong change to the product, and the tests that should notice it. */

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

export interface Suite {
  tier: 'unit' | 'workflow' | 'service';
  /** From the top of the checkout. */
  file: string;
  /** The beginning of titles, or any part of them; without it the whole file runs. */
  test?: string;
}

export interface Mutant {
  /** `<kind>-<what is changed>`. */
  id: string;
  /** From the top of the checkout. */
  file: string;
  /** Stands in the file exactly once. */
  find: string;
  replace: string;
  wrong: Wrong;
  /** What the product does then. */
  what: string;
  suite: Suite;
  /** Why no test has to notice it. */
  survives?: string;
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

/** @throws Error when the text to find is not there exactly once. */
export function mutate(source: string, { id, file, find, replace }: Mutant): string {
  const count = source.split(find).length - 1;
  if (count !== 1) throw new Error(`${id}: what it looks for is in ${file} ${count} times`);
  return source.replace(find, () => replace);
}

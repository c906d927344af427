/** The list of `npm run test:mutants`, so that it does not rot: running it takes a quarter of an hour. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { MUTANTS } from '../../mutants/list.ts';
import { WRONGS, mutate } from '../../mutants/mutant.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

test.each(MUTANTS.map((mutant) => [mutant.id, mutant] as const))(
  '%s changes one place of a file of the product',
  (_, mutant) => {
    expect(mutate(read(mutant.file), mutant)).not.toBe(read(mutant.file));
    expect(mutant.file).toMatch(/^(activities|api|catalog|cli|client|config|migrations|workers|workflows)\//);
  },
);

test('ids are unique, and there are enough of every kind', () => {
  const ids = MUTANTS.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.length).toBeGreaterThanOrEqual(60);
  expect([...WRONGS].filter((wrong) => !MUTANTS.some((mutant) => mutant.wrong === wrong))).toEqual([]);
});

test('suites are there, with the tests that are named', () => {
  const missing = MUTANTS.filter(({ suite: { tier, file, test: title } }) => {
    if (!file.endsWith(`.${tier}.test.ts`) || !existsSync(path.join(ROOT, file))) return true;
    return title !== undefined && !read(file).includes(title);
  });
  expect(missing.map(({ id }) => id)).toEqual([]);
});

test('survivors are few, and each has its reason', () => {
  const survivors = MUTANTS.filter(({ survives }) => survives !== undefined);
  expect(survivors.length).toBeLessThanOrEqual(MUTANTS.length * 0.05);
  expect(survivors.filter(({ survives }) => survives!.length < 20)).toEqual([]);
});

/** `node mutants/write-report.ts FILE …`: mutants/REPORT.md from the results of `--json`; of a mutant the last one counts. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { MUTANTS } from './list.ts';
import type { Tried } from './report.ts';
import { markdownOf } from './report.ts';

const results = process.argv.slice(2).flatMap((file) => JSON.parse(readFileSync(file, 'utf8')) as Tried[]);
const resultOf = new Map(results.map(({ mutant, result }) => [mutant.id, result]));
const tried = MUTANTS.flatMap((mutant): Tried[] => {
  const result = resultOf.get(mutant.id);
  return result ? [{ mutant, result }] : [];
});
const file = path.join(import.meta.dirname, 'REPORT.md');
writeFileSync(file, markdownOf(tried));
process.stderr.write(`${tried.length} of ${MUTANTS.length} mutants are in ${file}\n`);

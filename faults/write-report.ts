/**
 * `node faults/write-report.ts result.json …`: REPORT.md, and the sentence about it in README.md, of these runs. The files
 * come from `npm run test:faults -- --json FILE`. With `--page CLUSTER.md` first, that page beside it, and no sentence.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { fillMarkedText } from '../dev/marked-text.ts';
import type { Result } from './report.ts';
import { markdownOf, summaryOf } from './report.ts';

const {
  values: { page },
  positionals: files,
} = parseArgs({ options: { page: { type: 'string' } }, allowPositionals: true });
const results = files.map((file) => JSON.parse(readFileSync(file, 'utf8')) as Result);
writeFileSync(path.join(import.meta.dirname, page ?? 'REPORT.md'), markdownOf(results));

if (page === undefined) {
  await fillMarkedText(path.join(import.meta.dirname, '..', 'README.md'), 'faults', summaryOf(results));
}

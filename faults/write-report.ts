/**
 * `node faults/write-report.ts result.json …`: REPORT.md, and the sentence about it in README.md, of these runs. The files
 * come from `npm run test:faults -- --json FILE`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fillMarkedText } from '../dev/marked-text.ts';
import type { Result } from './report.ts';
import { markdownOf, summaryOf } from './report.ts';

const results = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, 'utf8')) as Result);
writeFileSync(path.join(import.meta.dirname, 'REPORT.md'), markdownOf(results));

await fillMarkedText(path.join(import.meta.dirname, '..', 'README.md'), 'faults', summaryOf(results));

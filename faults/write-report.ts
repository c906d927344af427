/** `node faults/write-report.ts result.json …`: REPORT.md of these runs, results of `npm run test:faults -- --json FILE`. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Result } from './report.ts';
import { markdownOf } from './report.ts';

const results = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, 'utf8')) as Result);
writeFileSync(path.join(import.meta.dirname, 'REPORT.md'), markdownOf(results));

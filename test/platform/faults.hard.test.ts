/**
 * A selection of the fault suite (`npm run test:faults`): fewer intents and mobile pushes, a few faults, and a Redis that is put
 * back. The whole suite is run by hand; docs/internals/figures.md has its figures.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Result } from '../../faults/report.ts';
import { scratchFolder } from '../scratch.ts';

const LIMIT_MS = 900_000;
const scratch = scratchFolder('faults-test');

test(
  'I3 I23 I24 I36 I46 M8 security-7 security-8 intents and mobile pushes under faults, of which a store forgets: nothing lost, misdirected, altered or doubled, nothing readable',
  async () => {
    const file = path.join(scratch.dir, 'result.json');
    const options = [
      ...['--seed=selection-1', '--intents=150', '--seconds=15', '--faults=5', '--losses=redis'],
      ...['--only=intent,mobile-push', '--encrypted', `--json=${file}`],
    ];
    const { status, stderr } = spawnSync(process.execPath, ['faults/main.ts', ...options], {
      timeout: LIMIT_MS,
    });
    if (status !== 0) throw new Error(String(stderr));
    const result = JSON.parse(readFileSync(file, 'utf8')) as Result;
    expect(result.isGood).toBe(true);
    expect(result.works['intent']!.figures['accepted']).toBeGreaterThan(100);
    expect(result.faults.reduce((sum, { count }) => sum + count, 0)).toBe(6);
    expect(result.excusedShare).toBeLessThanOrEqual(0.05);
  },
  LIMIT_MS,
);

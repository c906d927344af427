/** The servers of a run of drills, and where it keeps what they found out. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startServersOfRun } from '../global-setup.ts';

/** One for each kind of work, and some to spare. */
const MOST_FILES = 12;

export default async function setUp(): Promise<void> {
  process.env['TEST_DRILLS'] = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-drills-'));
  await startServersOfRun(MOST_FILES);
}

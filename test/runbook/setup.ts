/** The servers of a run of drills, and where it keeps what they found out. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import startServers from '../global-setup.ts';

export default async function setUp(): Promise<void> {
  process.env['TEST_DRILLS'] = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-drills-'));
  await startServers();
}

/** Stops the servers of a run of drills, and prints its report. */
import { rmSync } from 'node:fs';
import process from 'node:process';
import stopServers from '../global-teardown.ts';
import { reportOf } from './report.ts';

export default async function tearDown(): Promise<void> {
  const dir = process.env['TEST_DRILLS']!;
  process.stderr.write(await reportOf(dir));
  rmSync(dir, { recursive: true, force: true });
  await stopServers();
}

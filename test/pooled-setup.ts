/** Starts the servers of the run, and PgBouncer before PostgreSQL for services and operators. */
import { report } from '../dev/program.ts';
import startServers from './global-setup.ts';
import type { Pooler } from './pooler.ts';
import { startPooler } from './pooler.ts';
import { SLOTS, roleOfSlot } from './slots.ts';

declare global {
  var poolerOfThisRun: Pooler | undefined;
}

export default async function setUp(): Promise<void> {
  await startServers();
  const pooler = await startPooler(
    new URL(globalThis.serversOfThisRun!.stack.postgresDsn!).port,
    Array.from({ length: SLOTS }, (_, slot) => roleOfSlot(slot)),
  );
  report(`PostgreSQL is reached through ${pooler.what}`);
  globalThis.poolerOfThisRun = pooler;
  process.env['TEST_POOLER_PORT'] = String(pooler.port);
}

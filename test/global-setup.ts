/** Starts the real servers once for the whole run, on free ports and with data that ends with it. */
import { chmodSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { report } from '../dev/program.ts';
import type { Stack } from '../dev/servers/stack.ts';
import { startStack } from '../dev/servers/stack.ts';
import { SEARCH_ATTRIBUTE_NAMES, loadConfig } from '../config/load.ts';
import { temporalProgramOf } from '../config/service.ts';
import { workflowBundle } from '../workers/workflow-bundle.ts';
import type { Pooler } from './pooler-stand-in.ts';
import { startPooler } from './pooler.ts';
import { makeUsers } from './redis-users.ts';
import { SLOTS, namespaceOf, roleOfSlot } from './slots.ts';

declare global {
  var stackOfThisRun: { stack: Stack; dataDir: string; pooler?: Pooler } | undefined;
}

export default function globalSetup(): Promise<void> {
  return startServersOfRun(SLOTS);
}

/** @param slots how many test files the run has at most. */
export async function startServersOfRun(slots: number): Promise<void> {
  const { values } = loadConfig();
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-test-'));
  // As root, PostgreSQL runs as a user of its own, who must get in.
  chmodSync(dataDir, 0o755);
  const stack = await startStack({
    dataDir,
    durable: false,
    report,
    postgres: { port: 0 },
    redis: { port: 0, databases: slots },
    temporal: {
      port: 0,
      uiPort: 0,
      program: temporalProgramOf(values),
      namespaces: Array.from({ length: slots }, (_, slot) => namespaceOf(slot)),
      searchAttributes: SEARCH_ATTRIBUTE_NAMES,
    },
  });
  globalThis.stackOfThisRun = { stack, dataDir };
  process.env['TEST_STACK'] = JSON.stringify(stack);
  const redis = new Redis(Number(stack.redisAddr!.split(':')[1]));
  await makeUsers(redis);
  redis.disconnect();
  if (process.env['TEST_POSTGRES'] === 'pooled') {
    const pooler = await startPooler(
      new URL(stack.postgresDsn!).port,
      Array.from({ length: slots }, (_, slot) => roleOfSlot(slot)),
    );
    report(`PostgreSQL is reached through ${pooler.what}`);
    globalThis.stackOfThisRun.pooler = pooler;
    process.env['TEST_POOLER_PORT'] = String(pooler.port);
  }
  // Built once here, so that no test file's first worker pays for it.
  await workflowBundle();
}

/** Starts the real servers once for a run, on free ports and with data that ends with it. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { report } from '../dev/program.ts';
import type { Stack } from '../dev/servers/stack.ts';
import { startStack } from '../dev/servers/stack.ts';
import { loadConfig } from '../config/load.ts';
import { migrate } from '../migrations/migrate.ts';
import { workflowBundle } from '../workers/workflow-bundle.ts';
import { makeUsers } from './redis-users.ts';
import { setClockOfRun } from './run-clock.ts';
import { NAMESPACES_AHEAD, SLOTS, TEMPLATE_DATABASE, namespaceOf } from './slots.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

declare global {
  var serversOfThisRun: ServersOfRun | undefined;
}

export interface ServersOfRun {
  stack: Stack;
  stop(): Promise<void>;
}

export default async function globalSetup(): Promise<void> {
  // A run of several projects asks once for each.
  if (globalThis.serversOfThisRun) return;
  globalThis.serversOfThisRun = await startServersOfRun();
  process.env['TEST_STACK'] = JSON.stringify(globalThis.serversOfThisRun.stack);
  setClockOfRun();
  // Built once here, so that no test file's first worker pays for it.
  await workflowBundle();
}

/** Starts PostgreSQL, Redis with the users of deploy/redis/users.acl, and Temporal. `takeSlot` divides them. */
export async function startServersOfRun(): Promise<ServersOfRun> {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-test-'));
  // As root, PostgreSQL runs as a separate user, who must get in.
  chmodSync(dataDir, 0o755);
  const stack = await startStack({
    dataDir,
    durable: false,
    report,
    postgres: { port: 0 },
    redis: { port: 0, databases: SLOTS },
    temporal: {
      port: 0,
      uiPort: 0,
      program: loadConfig().values.TEMPORAL_CLI_PATH,
      namespaces: Array.from({ length: NAMESPACES_AHEAD }, (_, slot) => namespaceOf(slot + 1)),
      searchAttributes: SEARCH_ATTRIBUTES,
    },
  });
  const stop = async () => {
    await stack.stop();
    rmSync(dataDir, { recursive: true, force: true });
  };
  try {
    const redis = new Redis(Number(stack.redisAddr!.split(':')[1]));
    await makeUsers(redis).finally(() => redis.disconnect());
    await makeTemplateDatabase(stack.postgresDsn!);
  } catch (error) {
    await stop();
    throw error;
  }
  return { stack, stop };
}

/** Copying a migrated database costs a tenth of migrating an empty one. */
async function makeTemplateDatabase(adminDsn: string): Promise<void> {
  const admin = new pg.Client({ connectionString: adminDsn });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${TEMPLATE_DATABASE}`);
  const dsn = new URL(adminDsn);
  dsn.pathname = `/${TEMPLATE_DATABASE}`;
  await migrate(dsn.href);
  await admin.query(`ALTER DATABASE ${TEMPLATE_DATABASE} ALLOW_CONNECTIONS false`);
  await admin.end();
}

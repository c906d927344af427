/** Starts the real servers once for the whole run, on free ports and with data that ends with it. */
import { chmodSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Stack } from '../dev/servers/stack.ts';
import { startStack } from '../dev/servers/stack.ts';
import { SEARCH_ATTRIBUTE_NAMES, loadConfig } from '../config/load.ts';
import { workflowBundle } from '../workers/workflow-bundle.ts';
import { SLOTS, namespaceOf } from './slots.ts';

declare global {
  var stackOfThisRun: { stack: Stack; dataDir: string } | undefined;
}

export default async function globalSetup(): Promise<void> {
  const report = (line: string) => process.stderr.write(`${line}\n`);
  const { values } = loadConfig();
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-test-'));
  // As root, PostgreSQL runs as a user of its own, who must get in.
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
      cliPath: values.TEMPORAL_CLI_PATH,
      namespaces: Array.from({ length: SLOTS }, (_, slot) => namespaceOf(slot)),
      searchAttributes: SEARCH_ATTRIBUTE_NAMES,
    },
  });
  globalThis.stackOfThisRun = { stack, dataDir };
  process.env['TEST_STACK'] = JSON.stringify(stack);
  // Built once here, so that no test file's first worker pays for it.
  await workflowBundle();
}

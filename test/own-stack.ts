/** Servers of one test, with their files in a separate folder: its faults must not reach other tests. */
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { loadConfig } from '../config/load.ts';
import type { Stack } from '../dev/servers/stack.ts';
import { startStack } from '../dev/servers/stack.ts';
import { namespaceOf } from './slots.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

/** @param name begins the name of the folder. */
export async function startOwnStack(name: string) {
  const dir = mkdtempSync(path.join(tmpdir(), `galaxy-notify-${name}-`));
  // As root, PostgreSQL runs as a separate user, who must get in.
  chmodSync(dir, 0o755);
  const stack = await startStack({
    dataDir: path.join(dir, 'servers'),
    report: () => undefined,
    postgres: { port: 0 },
    redis: { port: 0 },
    temporal: {
      port: 0,
      program: loadConfig().values.TEMPORAL_CLI_PATH,
      namespaces: [namespaceOf(1)],
      searchAttributes: SEARCH_ATTRIBUTES,
    },
  });
  return {
    /** For further files of the test; those of the servers are in `servers`. */
    dir,
    stack: stack as Required<Stack>,
    pidOf(server: 'redis' | 'postgres' | 'temporal'): number {
      const file = readFileSync(path.join(dir, 'servers', `${server}.pid.json`), 'utf8');
      return (JSON.parse(file) as { server: { pid: number } }).server.pid;
    },
    async stop() {
      await stack.stop();
      rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}

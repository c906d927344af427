/** The CLI as operators run it: a process of its own, configured by its environment. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Slot } from './harness.ts';
import { PROGRAM_ENV } from './program-env.ts';
import { asUser } from './redis-users.ts';
import { namespaceOf } from './slots.ts';

export interface CliResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Only this run's Redis knows the users. */
const usersOf = (changes: Record<string, string>) =>
  changes['NOTIFICATION_REDIS_MASTER_ADDR'] === undefined ? asUser('operator') : {};

/** The CLI with the servers of a slot. Call `dispose` at the end. */
export function cliFor(slot: Slot) {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-cli-'));
  const { redis, postgresDsn, temporalAddress = '', userServiceUrl } = slot.endpoints;
  const env: Record<string, string> = {
    NOTIFICATION_DATA_DIR: dataDir,
    NOTIFICATION_ROLES: 'intent',
    NOTIFICATION_REDIS_MASTER_ADDR: `${redis.host}:${redis.port}`,
    NOTIFICATION_REDIS_DB: String(slot.slot),
    NOTIFICATION_POSTGRES_PRIMARY_DSN: postgresDsn,
    TEMPORAL_ADDRESS: temporalAddress,
    TEMPORAL_NAMESPACE: namespaceOf(slot.slot),
    NOTIFICATION_USER_SERVICE_BASE_URL: userServiceUrl,
    NOTIFICATION_TEMPORAL_UI_URL: 'http://ui.test',
    NOTIFICATION_RUNBOOK_URL: 'http://runbook.test',
  };

  /** Runs it without a terminal. */
  function cli(
    args: string[],
    { changes = {}, input = '' }: { changes?: Record<string, string>; input?: string } = {},
  ) {
    return new Promise<CliResult>((resolve) => {
      const child = spawn(process.execPath, ['cli/main.ts', ...args], {
        env: { ...PROGRAM_ENV, ...env, ...usersOf(changes), ...changes },
      });
      const result: CliResult = { code: null, stdout: '', stderr: '' };
      child.stdout.on('data', (chunk: Buffer) => (result.stdout += chunk.toString()));
      child.stderr.on('data', (chunk: Buffer) => (result.stderr += chunk.toString()));
      child.once('close', (code) => resolve({ ...result, code }));
      child.stdin.end(input);
    });
  }

  /** Runs it with --json; the output must be one JSON document. */
  async function json<T>(args: string[]): Promise<{ code: number | null; value: T }> {
    const { code, stdout } = await cli([...args, '--json']);
    return { code, value: JSON.parse(stdout) as T };
  }

  return { cli, json, env, dataDir, dispose: () => rmSync(dataDir, { recursive: true, force: true }) };
}

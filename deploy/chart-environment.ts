/**
 * Reads a rendered chart and lets the service's own configuration read the environment of each container, secrets
 * included: what would stop a pod at its start is said here. Used by validate.sh.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseAllDocuments } from 'yaml';
import { loadConfig } from '../config/load.ts';

const MOUNTED_AT = '/etc/galaxy-notify/secrets/';
const SEALING_KEY = `k1:${Buffer.alloc(32).toString('base64')}`;
/** Values that the checks of each secret accept. */
const SECRETS: Record<string, string> = {
  NOTIFICATION_REDIS_PASSWORD: 'password',
  NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://user:password@postgres/notification',
  NOTIFICATION_PAYLOAD_KEYS: SEALING_KEY,
  NOTIFICATION_SUBSCRIPTION_KEYS: SEALING_KEY,
  NOTIFICATION_CODEC_TOKEN: 'sixteen characters',
  TEMPORAL_API_KEY: 'key',
};

interface Workload {
  kind?: string;
  metadata?: { name: string };
  spec?: { template?: { spec?: { containers: { env: { name: string; value: string }[] }[] } } };
}

const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-chart-'));
try {
  for (const [name, value] of Object.entries(SECRETS)) writeFileSync(path.join(folder, name), value);
  for (const document of parseAllDocuments(readFileSync(process.argv[2]!, 'utf8'))) {
    const { kind, metadata, spec } = (document.toJS() ?? {}) as Workload;
    for (const { env } of spec?.template?.spec?.containers ?? []) {
      const read = env.map(({ name, value }) => [name, value.replace(MOUNTED_AT, `${folder}/`)]);
      const { roles } = loadConfig(Object.fromEntries(read) as Record<string, string>);
      console.log(`${kind} ${metadata?.name}: ${roles.join(', ')}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

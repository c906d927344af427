/**
 * Reads a rendered chart and lets the service's own configuration read the environment of each container, secrets
 * included: what would stop a pod at its start is said here. Used by validate.sh.
 */
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseAllDocuments } from 'yaml';
import { loadConfig } from '../config/load.ts';

/** What is mounted from Secrets; every file of them is in one folder here. */
const MOUNTED_AT = /\/etc\/galaxy-notify\/(?:secrets|redis-tls|postgres-tls)\//g;
/** As good as random ones. */
const bytesOf = (name: string): Buffer => createHash('sha256').update(name).digest();
const SEALING_KEY = `k1:${bytesOf('sealing key').toString('base64')}`;
const SIGNING_SECRET = `whsec_${bytesOf('signing secret').toString('base64')}`;
const PEM = '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n';
/** Values that the checks of each secret accept. */
const SECRETS: Record<string, string> = {
  NOTIFICATION_REDIS_PASSWORD: 'password',
  NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://user:password@postgres/notification?sslmode=verify-full',
  NOTIFICATION_POSTGRES_OWNER_DSN: 'postgres://owner:password@postgres/notification?sslmode=verify-full',
  NOTIFICATION_PAYLOAD_KEYS: SEALING_KEY,
  NOTIFICATION_SUBSCRIPTION_KEYS: SEALING_KEY,
  NOTIFICATION_CODEC_TOKEN: bytesOf('codec').toString('hex'),
  NOTIFICATION_USER_SERVICE_TOKEN: bytesOf('users').toString('hex'),
  NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: SIGNING_SECRET,
  NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS: SIGNING_SECRET,
  TEMPORAL_API_KEY: 'key',
  'ca.crt': PEM,
  'tls.crt': PEM,
  'tls.key': PEM,
};

interface Container {
  env: { name: string; value: string }[];
  volumeMounts: { name: string; mountPath: string }[];
}

interface Workload {
  kind?: string;
  metadata?: { name: string };
  spec?: { template?: { spec?: { containers: Container[]; volumes: { name: string }[] } } };
}

/** @throws Error naming a file that nothing mounts, or a mount of no volume. */
function checkMounts({ env, volumeMounts }: Container, volumes: readonly { name: string }[]): void {
  const isMounted = (file: string) => volumeMounts.some(({ mountPath }) => file.startsWith(`${mountPath}/`));
  // The job that sets up names files of all roles, and is given what every process reads.
  const files = env.filter(({ value }) => /^\/etc\/galaxy-notify\/(secrets|[a-z]+-tls)\//.test(value));
  const lost = files.find(({ value }) => !isMounted(value));
  if (lost) throw new Error(`${lost.name} names ${lost.value}, where nothing is mounted`);
  const empty = volumeMounts.find(({ name }) => !volumes.some((volume) => volume.name === name));
  if (empty) throw new Error(`${empty.mountPath} is of the volume ${empty.name}, which is not there`);
}

const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-chart-'));
try {
  for (const [name, value] of Object.entries(SECRETS)) writeFileSync(path.join(folder, name), value);
  for (const document of parseAllDocuments(readFileSync(process.argv[2]!, 'utf8'))) {
    const { kind, metadata, spec } = (document.toJS() ?? {}) as Workload;
    const { containers = [], volumes = [] } = spec?.template?.spec ?? {};
    for (const container of containers) {
      const { env } = container;
      checkMounts(container, volumes);
      const read = env.map(({ name, value }) => [name, value.replaceAll(MOUNTED_AT, `${folder}/`)]);
      const { roles } = loadConfig(Object.fromEntries(read) as Record<string, string>);
      console.log(`${kind} ${metadata?.name}: ${roles.join(', ')}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

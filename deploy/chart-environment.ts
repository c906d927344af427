/**
 * Reads a rendered chart and lets the service's own configuration read the environment of each container, secrets
 * included: what would stop a pod at its start is said here. So is a secret that is mounted where nothing reads it. Used by
 * validate.sh.
 */
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseAllDocuments } from 'yaml';
import { loadCodecConfig, loadConfig, loadOperatorConfig } from '../config/load.ts';

/** What is mounted from Secrets and ConfigMaps; every file of them is in one folder here. */
const MOUNTED_AT = /\/etc\/galaxy-notify\/(?:secrets|symbol-targets|[a-z]+-tls)\//g;
/** As good as random ones. */
const bytesOf = (name: string): Buffer => createHash('sha256').update(name).digest();
const SEALING_KEY = `k1:${bytesOf('sealing key').toString('base64')}`;
const SIGNING_SECRET = `whsec_${bytesOf('signing secret').toString('base64')}`;
const PEM = '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n';
const PASSWORD = bytesOf('password').toString('hex');

/** Values that the checks of each secret accept. */
const SECRETS: Record<string, string> = {
  NOTIFICATION_REDIS_PASSWORD: PASSWORD,
  NOTIFICATION_REDIS_SENTINEL_PASSWORD: bytesOf('sentinels').toString('hex'),
  NOTIFICATION_POSTGRES_PRIMARY_DSN: `postgres://user:${PASSWORD}@postgres/notification?sslmode=verify-full`,
  NOTIFICATION_POSTGRES_OWNER_DSN: `postgres://owner:${PASSWORD}@postgres/notification?sslmode=verify-full`,
  NOTIFICATION_PAYLOAD_KEYS: SEALING_KEY,
  NOTIFICATION_SUBSCRIPTION_KEYS: SEALING_KEY,
  NOTIFICATION_POSTGRES_REPLICA_DSNS: `postgres://user:${PASSWORD}@replica/notification?sslmode=verify-full`,
  NOTIFICATION_USER_SERVICE_TOKEN: bytesOf('users').toString('hex'),
  NOTIFICATION_HTTP_CA_FILE: PEM,
  NOTIFICATION_HTTP_CERT_FILE: PEM,
  NOTIFICATION_HTTP_KEY_FILE: PEM,
  OTEL_EXPORTER_OTLP_HEADERS: 'authorization=token',
  NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: SIGNING_SECRET,
  NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS: SIGNING_SECRET,
  TEMPORAL_API_KEY: 'key',
  'ca.crt': PEM,
  'tls.crt': PEM,
  'tls.key': PEM,
};

interface Container {
  /** Absent: the service. */
  command?: string[];
  env: { name: string; value: string }[];
  volumeMounts: { name: string; mountPath: string }[];
}

interface Volume {
  name: string;
  secret?: { secretName: string; items?: { key: string; path: string }[] };
}

interface PodSpec {
  containers: Container[];
  volumes: Volume[];
}

interface Workload {
  kind?: string;
  metadata?: { name: string };
  /** Of a ConfigMap. */
  data?: Record<string, string>;
  spec?: Partial<PodSpec> & { template?: { spec?: PodSpec } };
}

/** The address of PostgreSQL names its files, and that is a secret itself: it cannot be known which of them it names. */
const NAMED_BY_A_SECRET = 'postgres-tls';

/**
 * A pod has the secrets that its environment names, and no others: what one role needs must not lie in the pods of all.
 *
 * @throws Error that names a mounted value without a reader, and a Secret that is mounted as a whole.
 */
function checkSecrets({ env, volumeMounts }: Container, volumes: readonly Volume[]): void {
  for (const { name, secret } of volumes) {
    if (!secret || name === NAMED_BY_A_SECRET) continue;
    if (!secret.items) throw new Error(`everything in the Secret ${secret.secretName} is mounted`);
    const mount = volumeMounts.find((candidate) => candidate.name === name);
    for (const { path: file } of secret.items) {
      const isNamed = env.some(({ value }) => value === `${mount?.mountPath}/${file}`);
      if (!isNamed)
        throw new Error(`${file} of the Secret ${secret.secretName} is mounted, and nothing reads it`);
    }
  }
}

/** @throws Error naming a file that nothing mounts, or a mount of no volume. */
function checkMounts({ env, volumeMounts }: Container, volumes: readonly Volume[]): void {
  const isMounted = (file: string) => volumeMounts.some(({ mountPath }) => file.startsWith(`${mountPath}/`));
  // The job that sets up names files of all roles, and is given what every process reads.
  const files = env.filter(({ value }) => value.search(MOUNTED_AT) === 0);
  const lost = files.find(({ value }) => !isMounted(value));
  if (lost) throw new Error(`${lost.name} names ${lost.value}, where nothing is mounted`);
  const empty = volumeMounts.find(({ name }) => !volumes.some((volume) => volume.name === name));
  if (empty) throw new Error(`${empty.mountPath} is of the volume ${empty.name}, which is not there`);
}

const folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-chart-'));
try {
  const documents = parseAllDocuments(readFileSync(process.argv[2]!, 'utf8')).map(
    (document) => (document.toJS() ?? {}) as Workload,
  );
  const files = documents.flatMap(({ kind, data }) =>
    kind === 'ConfigMap' ? Object.entries(data ?? {}) : [],
  );
  for (const [name, value] of [...Object.entries(SECRETS), ...files])
    writeFileSync(path.join(folder, name), value);
  for (const { kind, metadata, spec } of documents) {
    const { containers = [], volumes = [] } = spec?.template?.spec ?? spec ?? {};
    for (const container of containers) {
      const { env, command } = container;
      checkMounts(container, volumes);
      checkSecrets(container, volumes);
      const read = env.map(({ name, value }) => [name, value.replaceAll(MOUNTED_AT, `${folder}/`)]);
      // A command of operators, such as the set-up, calls no server that asks for proof of its identity.
      const isCodecServer = command?.includes('codec-server') ?? false;
      const load = isCodecServer ? loadCodecConfig : command ? loadOperatorConfig : loadConfig;
      const { roles } = load(Object.fromEntries(read) as Record<string, string>);
      console.log(`${kind} ${metadata?.name}: ${roles.join(', ')}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

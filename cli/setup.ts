/** `setup`: creates what the service needs and what is missing; it may run as often as you like. */
import type { Client } from '@temporalio/client';
import type { Command } from 'commander';
import type { Pool } from 'pg';
import { given } from '../api/given.ts';
import { allOf } from '../api/within.ts';
import { OperationFailedError, causeOf } from '../client/errors.ts';
import { SCHEDULE_LIMIT_MS, bounded } from '../client/temporal.ts';
import { oncePossible } from '../client/wait-until.ts';
import { loadOperatorConfig, needsOf } from '../config/load.ts';
import type { NeededSchedule } from '../config/variables.ts';
import { isPooled } from '../api/postgres-transaction.ts';
import { migrate, pendingMigrations } from '../migrations/migrate.ts';
import {
  addSearchAttributes,
  changeRetention,
  createNamespace,
  ensureSchedule,
  isRefused,
  isUnknownNamespace,
  lackOfSearchAttributes,
  missingSearchAttributes,
  namesOf,
  namespaceRetentionMs,
  scheduleIntervalMs,
} from '../migrations/namespace.ts';
import { grantToService, setSessionDefaults } from '../migrations/service-role.ts';
import { EXIT, action } from './command.ts';
import { form, option } from './definition.ts';
import { shell } from './invocation.ts';
import { durationOption } from './options.ts';
import { countOf, durationOf, printItems, printJson, report } from './output.ts';
import type { Session } from './session.ts';
import { check, openSession } from './session.ts';
import type { SearchAttributes } from '../workflows/search-attributes.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

/** How a new namespace is made when nothing else is asked for: time to look into what happened over a weekend. */
const DEFAULT_RETENTION_MS = 72 * 3_600_000;
/** A server tells its hosts about a new namespace every 10 s. */
const KNOWN_LIMIT_MS = 30_000;

interface SetupStep {
  name: string;
  /** `missing`: it would be created or changed, but this was a dry run. */
  status: 'ok' | 'created' | 'changed' | 'missing';
  detail: string;
}

/** What a step does where something lacks. */
type Lack = Extract<SetupStep['status'], 'created' | 'changed'> | undefined;

/** @param lack undefined: it is there. @param make is not called in a dry run. */
async function carryOut(
  name: string,
  { lack, detail, isDryRun }: { lack: Lack; detail: string; isDryRun: boolean },
  make?: () => Promise<unknown>,
): Promise<SetupStep> {
  if (lack !== undefined && !isDryRun) await make?.();
  return { name, status: lack !== undefined && isDryRun ? 'missing' : (lack ?? 'ok'), detail };
}

/** What has a duration, as it is and as it should be. */
function compare(foundMs: number | undefined, wantedMs: number, what: string) {
  const lack: Lack = foundMs === undefined ? 'created' : foundMs === wantedMs ? undefined : 'changed';
  const before = lack === 'changed' ? `, before: ${durationOf(foundMs!)}` : '';
  return { lack, detail: `${what} ${durationOf(wantedMs)}${before}` };
}

interface SetupNeeds {
  temporal: Client;
  namespace: string;
  /** Absent: 72 h for a new namespace; one that is there keeps its own. */
  retentionMs?: number;
  searchAttributes: SearchAttributes;
  isDryRun: boolean;
}

interface SetupOptions {
  retention?: number;
  dryRun?: boolean;
  database: boolean;
}

const WHAT_IT_DOES = `
What is there stays as it is. The namespace is TEMPORAL_NAMESPACE; schedules are those of NOTIFICATION_ROLES. On Temporal
Cloud, namespaces and search attributes are made with its tools; setup then says with which commands, and does the rest.

With NOTIFICATION_POSTGRES_OWNER_DSN tables are made by that role, which owns them, and the role of the service gets the
rights that it needs: it can then change no table. Without it both are the same role.
`;

export function addTo(command: Command): void {
  form(command, {
    options: [
      durationOption(
        '--retention <duration>',
        'how long closed workflows are kept; default: 72h in a new namespace, unchanged in an existing one',
      ),
      option('--dry-run', 'show what is missing, and create nothing; exit code 1 when something is'),
      option('--no-database', 'leave PostgreSQL alone; the service migrates its schema at start'),
    ],
    above: WHAT_IT_DOES,
    examples: ['setup', 'setup --retention 7d', 'setup --dry-run --json'],
  }).action(
    action<SetupOptions>(async ({ json, ...options }) => {
      const session = openSession(loadOperatorConfig(shell().env));
      try {
        const steps = await setUp(session, options);
        if (json) printJson({ steps });
        else printItems(steps, { STEP: 'name', STATUS: 'status', DETAIL: 'detail' });
        const missing = steps.filter(({ status }) => status === 'missing').length;
        if (missing > 0) report(`${countOf(missing, 'step')} to do; run it without --dry-run`);
        return missing > 0 ? EXIT.failed : EXIT.done;
      } finally {
        await session.close();
      }
    }),
  );
}

async function setUp(session: Session, options: SetupOptions): Promise<SetupStep[]> {
  const { config, resources } = session;
  const { temporal, namespace } = resources;
  const isDryRun = options.dryRun ?? false;
  const { schedules } = needsOf(config);
  const needs: SetupNeeds = {
    ...{ temporal, namespace, searchAttributes: SEARCH_ATTRIBUTES, isDryRun },
    ...given({ retentionMs: options.retention }),
  };
  // Unlike other commands, this one does not need the namespace to be there.
  const asked = () => bounded(temporal, () => temporal.workflowService.getSystemInfo({}));
  await allOf(
    [check('Temporal', 'TEMPORAL_ADDRESS', asked), ...(options.database ? [session.reach('postgres')] : [])],
    OperationFailedError,
  );

  const steps = [await setUpNamespace(needs)];
  // Nothing can be asked of a namespace that is not there.
  const isThere = () =>
    session.reach('temporal').then(
      () => true,
      () => false,
    );
  if (steps[0]!.status !== 'missing' || (await isThere())) {
    steps.push(await setUpSearchAttributes(needs));
    for (const schedule of schedules) steps.push(await setUpSchedule(needs, schedule));
  } else {
    const missing = (name: string, detail: string) => steps.push({ name, status: 'missing', detail });
    missing('search attributes', namesOf(SEARCH_ATTRIBUTES).join(', '));
    for (const { id } of schedules) missing(`schedule ${id}`, 'in the new namespace');
  }
  if (options.database) steps.push(...(await setUpDatabase(session, isDryRun)));
  return steps;
}

async function setUpDatabase(
  { config, addresses, resources }: Session,
  isDryRun: boolean,
): Promise<SetupStep[]> {
  const { values } = config;
  const { postgresDsn } = addresses;
  const ownerDsn = values.NOTIFICATION_POSTGRES_OWNER_DSN;
  const migrationDsn = ownerDsn ?? postgresDsn;
  if (isPooled(migrationDsn)) {
    throw new OperationFailedError(
      'migrations cannot go through a pooler: NOTIFICATION_POSTGRES_OWNER_DSN must lead to PostgreSQL itself, without pgbouncer=true; or give --no-database',
    );
  }
  const pending = await pendingMigrations(migrationDsn);
  const lack = pending.length === 0 ? undefined : 'created';
  const detail = pending.join(', ') || 'all migrations are applied';
  const steps = [await carryOut('database schema', { lack, detail, isDryRun }, () => migrate(migrationDsn))];
  // Each of these looks first, and makes what is lacking unless it is a dry run.
  const made = (name: string, isChange: boolean, what: string) =>
    carryOut(name, { lack: isChange ? 'changed' : undefined, detail: what, isDryRun });
  if (ownerDsn !== undefined) {
    const role = await roleOf(resources.db);
    const grants = await grantToService(ownerDsn, role, { isDryRun });
    const rights = grants.length === 0 ? 'may read and write rows' : countOf(grants.length, 'grant');
    steps.push(await made(`database role ${role}`, grants.length > 0, rights));
  }
  if (isPooled(postgresDsn)) {
    const statementTimeoutMs = values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT;
    const defaults = `statements of ${await roleOf(resources.db)} end after ${durationOf(statementTimeoutMs)}, times are in UTC`;
    const isChange = await setSessionDefaults(postgresDsn, { statementTimeoutMs }, { isDryRun });
    steps.push(await made('database sessions', isChange, defaults));
  }
  return steps;
}

/** As PostgreSQL sees it: a pooler may log in with another role. */
async function roleOf(db: Pool): Promise<string> {
  const { rows } = await db.query<{ name: string }>('SELECT current_user AS name');
  return rows[0]!.name;
}

/** @throws OperationFailedError when the server refuses; so do the other steps. */
export async function setUpNamespace(needs: SetupNeeds): Promise<SetupStep> {
  const { temporal, namespace, retentionMs, isDryRun } = needs;
  const { connection } = temporal;
  const found = await bounded(temporal, () => namespaceRetentionMs(connection, namespace));
  const wantedMs = retentionMs ?? found ?? DEFAULT_RETENTION_MS;
  const compared = compare(found, wantedMs, 'closed workflows are kept for');
  const days = `--retention-days ${Math.max(1, Math.round(wantedMs / 86_400_000))}`;
  return carryOut(`namespace ${namespace}`, { ...compared, isDryRun }, () =>
    found === undefined
      ? orExplain(
          () => bounded(temporal, () => createNamespace(connection, namespace, wantedMs)),
          `the namespace ${namespace} is not there, and this server does not let us create it`,
          // Temporal Cloud puts the account behind the name that a new namespace is given.
          `tcld namespace create --namespace ${namespace.split('.', 1)[0]} --region <region> ${days}`,
        )
      : orExplain(
          () => bounded(temporal, () => changeRetention(connection, namespace, wantedMs)),
          `this server does not let us change the retention of ${namespace}`,
          `tcld namespace retention set --namespace ${namespace} ${days}`,
        ),
  );
}

export async function setUpSearchAttributes(needs: SetupNeeds): Promise<SetupStep> {
  const { temporal, namespace, searchAttributes, isDryRun } = needs;
  const { connection } = temporal;
  const missing = await onceKnown(needs, () =>
    missingSearchAttributes(connection, namespace, searchAttributes),
  );
  const names = namesOf(missing);
  const detail = names.join(', ') || `all ${Object.keys(searchAttributes).length} are there`;
  const lack = names.length === 0 ? undefined : 'created';
  return carryOut('search attributes', { lack, detail, isDryRun }, () =>
    orExplain(
      () => onceKnown(needs, () => addSearchAttributes(connection, namespace, missing)),
      lackOfSearchAttributes(namespace, missing),
      names
        .map((one) => `tcld namespace search-attributes add --namespace ${namespace} --sa ${one}`)
        .join('\n  '),
    ),
  );
}

async function setUpSchedule(needs: SetupNeeds, schedule: NeededSchedule): Promise<SetupStep> {
  const { temporal, isDryRun } = needs;
  const { id, everyMs } = schedule;
  const found = await onceKnown(needs, () => scheduleIntervalMs(temporal, id), SCHEDULE_LIMIT_MS);
  return carryOut(`schedule ${id}`, { ...compare(found, everyMs, 'every'), isDryRun }, () =>
    onceKnown(needs, () => ensureSchedule(temporal, schedule), SCHEDULE_LIMIT_MS),
  );
}

/** A namespace that was just created is not known everywhere; calls fail until it is. */
function onceKnown<T>({ temporal }: SetupNeeds, call: () => Promise<T>, limitMs?: number): Promise<T> {
  return oncePossible(() => bounded(temporal, call, limitMs), isUnknownNamespace, KNOWN_LIMIT_MS);
}

/** Says what to do instead when the server refuses: Temporal Cloud has other tools for it. */
async function orExplain(call: () => Promise<void>, what: string, command: string): Promise<void> {
  try {
    await call();
  } catch (error) {
    if (!isRefused(error)) throw error;
    throw new OperationFailedError(
      `${what} (${causeOf(error)}). On Temporal Cloud, do it in the Web UI or with:\n  ${command}\nthen run setup again`,
      { cause: error },
    );
  }
}

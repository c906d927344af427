/**
 * `setup`: creates what the service needs in Temporal and PostgreSQL and what is missing; it may run as often as you like.
 * `doctor` looks whether it is there.
 */
import type { Client } from '@temporalio/client';
import type { Command } from 'commander';
import { isPooled } from '../api/postgres-transaction.ts';
import { given } from '../api/given.ts';
import { allOf } from '../api/within.ts';
import { OperationFailedError, causeOf } from '../client/errors.ts';
import { SCHEDULE_LIMIT_MS, bounded, oncePossible } from '../client/temporal.ts';
import { needsOf } from '../config/load.ts';
import type { NeededSchedule } from '../config/variables.ts';
import { grantToService, migrate, pendingMigrations, setSessionDefaults } from '../migrations/migrate.ts';
import {
  changeRetention,
  createNamespace,
  describeSchedule,
  ensureSchedule,
  ensureSearchAttributes,
  isRefused,
  isUnknownNamespace,
  missingSearchAttributes,
  namespaceRetentionMs,
} from '../migrations/namespace.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';
import { EXIT } from './command.ts';
import { define, option } from './definition.ts';
import { durationOption } from './options.ts';
import { countOf, durationOf, printItems, report } from './output.ts';
import type { Session } from './session.ts';
import { check } from './session.ts';

interface SetupStep {
  name: string;
  /** `missing`: it would be created or changed, but this was a dry run. */
  status: 'ok' | 'created' | 'changed' | 'missing';
  detail: string;
}

interface SetupOptions {
  retention?: number;
  dryRun?: boolean;
  skipDatabase?: boolean;
}

const WHAT_IT_DOES = `
What is there stays as it is. The namespace is TEMPORAL_NAMESPACE; schedules are those of NOTIFICATION_ROLES. On Temporal
Cloud, namespaces and search attributes are made with its tools: docs/deploy/temporal-cloud.md; setup does the rest.

With NOTIFICATION_POSTGRES_OWNER_DSN tables are made by that role, which owns them, and the role of the service gets the
rights that it needs: it can then change no table. Without it both are the same role.
`;

export function addTo(command: Command): void {
  define(command, {
    options: [
      durationOption(
        '--retention <duration>',
        'how long closed workflows are kept; default: 72h in a new namespace, unchanged in an existing one',
      ),
      option('--dry-run', 'show what is missing, and create nothing; exit code 1 when something is'),
      option('--skip-database', 'leave PostgreSQL alone; the service migrates its schema at start'),
    ],
    above: WHAT_IT_DOES,
    examples: ['setup', 'setup --retention 7d', 'setup --dry-run --json'],
    // The namespace need not be there yet.
    needs: [],
    run: async (session, options: SetupOptions) => ({ steps: await setUp(session, options) }),
    print: ({ steps }) => printItems(steps, { STEP: 'name', STATUS: 'status', DETAIL: 'detail' }),
    end({ steps }) {
      const missing = steps.filter(({ status }) => status === 'missing').length;
      if (missing > 0) report(`${countOf(missing, 'step')} to do; run it without --dry-run`);
      return missing > 0 ? EXIT.failed : EXIT.done;
    },
  });
}

async function setUp(
  session: Session,
  { retention: retentionMs, dryRun: isDryRun = false, skipDatabase = false }: SetupOptions,
): Promise<SetupStep[]> {
  const { temporal, namespace } = session.resources;
  // Unlike other commands, this one does not need the namespace to be there.
  const asked = () => bounded(temporal, () => temporal.workflowService.getSystemInfo({}));
  await allOf(
    [check('Temporal', 'TEMPORAL_ADDRESS', asked), ...(skipDatabase ? [] : [session.reach('postgres')])],
    OperationFailedError,
  );
  const { schedules } = needsOf(session.config);
  const steps: SetupStep[] = [];
  const makeUp = async ({ name, make }: Need, { lack, detail }: Standing): Promise<void> => {
    if (lack !== undefined && !isDryRun) await make(lack);
    steps.push({ name, status: lack && isDryRun ? 'missing' : (lack ?? 'ok'), detail });
  };
  const needs = temporalNeeds({ temporal, namespace, schedules, ...given({ retentionMs }) });
  const ofNamespace = await needs[0]!.look();
  await makeUp(needs[0]!, ofNamespace);
  // In a dry run nothing can be asked of a namespace that is not there.
  const isAbsent = isDryRun && ofNamespace.lack === 'created';
  const absent: Standing = { lack: 'created', detail: 'in the new namespace' };
  for (const need of needs.slice(1)) await makeUp(need, isAbsent ? absent : await need.look());
  if (!skipDatabase) for (const need of databaseNeeds(session)) await makeUp(need, await need.look());
  return steps;
}

// --- What is needed ----------------------------------------------------------------------------------------------------

/** How a new namespace is made when nothing else is asked for: time to look into what happened over a weekend. */
const DEFAULT_RETENTION_MS = 72 * 3_600_000;
/** A server tells its hosts about a new namespace every 10 s. */
const KNOWN_LIMIT_MS = 30_000;

export interface Standing {
  /** What is to be done; absent: nothing. */
  lack?: 'created' | 'changed';
  detail: string;
  /** What an operator should know although nothing is to be made. */
  doubt?: string;
}

export interface Need {
  name: string;
  look(): Promise<Standing>;
  /** @throws OperationFailedError when the server refuses. */
  make(lack: NonNullable<Standing['lack']>): Promise<unknown>;
  /** Of a look that may take longer than others, ms. */
  limitMs?: number;
}

/** @returns the standing of something that has a duration. */
function compare(foundMs: number | undefined, wantedMs: number, what: string): Standing {
  const detail = `${what} ${durationOf(wantedMs)}`;
  if (foundMs === wantedMs) return { detail };
  if (foundMs === undefined) return { lack: 'created', detail };
  return { lack: 'changed', detail: `${detail}, found: ${durationOf(foundMs)}` };
}

export interface TemporalPlace {
  temporal: Client;
  namespace: string;
  schedules: readonly NeededSchedule[];
  /** Absent: 72 h for a new namespace; one that is there keeps its own. */
  retentionMs?: number;
}

/** The namespace comes first: nothing can be asked of one that is not there. */
export function temporalNeeds({ temporal, namespace, schedules, retentionMs }: TemporalPlace): Need[] {
  const { connection } = temporal;
  /** A namespace that was just created is not known everywhere; calls fail until it is. */
  const onceKnown = <T>(call: () => Promise<T>, limitMs?: number): Promise<T> =>
    oncePossible(() => bounded(temporal, call, limitMs), isUnknownNamespace, KNOWN_LIMIT_MS);
  const retention = () => bounded(temporal, () => namespaceRetentionMs(connection, namespace));
  return [
    {
      name: `namespace ${namespace}`,
      async look() {
        const found = await retention();
        return compare(found, retentionMs ?? found ?? DEFAULT_RETENTION_MS, 'closed workflows are kept for');
      },
      async make(lack) {
        const ms = retentionMs ?? DEFAULT_RETENTION_MS;
        const change = lack === 'created' ? createNamespace : changeRetention;
        await bounded(temporal, () => change(connection, namespace, ms)).catch((error: unknown) => {
          if (!isRefused(error)) throw error;
          throw new OperationFailedError(
            `the namespace ${namespace} cannot be ${lack} by this server (${causeOf(error)}); on Temporal Cloud do it with tcld: docs/deploy/temporal-cloud.md`,
            { cause: error },
          );
        });
      },
    },
    {
      name: 'search attributes',
      async look() {
        const missing = await onceKnown(() =>
          missingSearchAttributes(connection, namespace, SEARCH_ATTRIBUTES),
        );
        return missing.length === 0
          ? { detail: `all ${Object.keys(SEARCH_ATTRIBUTES).length} are there` }
          : { lack: 'created', detail: missing.join(', ') };
      },
      make: () => onceKnown(() => ensureSearchAttributes(connection, namespace, SEARCH_ATTRIBUTES)),
    },
    ...schedules.map((schedule): Need => ({
      name: `schedule ${schedule.id}`,
      async look() {
        const found = await onceKnown(() => describeSchedule(temporal, schedule.id), SCHEDULE_LIMIT_MS);
        const isPaused = found?.state.paused === true;
        const doubt = isPaused ? `until it is unpaused, ${schedule.purpose}` : undefined;
        const standing = compare(found?.spec.intervals?.[0]?.every, schedule.everyMs, 'every');
        const detail = standing.detail + (isPaused ? `; paused: ${found.state.note ?? ''}` : '');
        return { ...standing, detail, ...given({ doubt }) };
      },
      make: () => onceKnown(() => ensureSchedule(temporal, schedule), SCHEDULE_LIMIT_MS),
      limitMs: SCHEDULE_LIMIT_MS,
    })),
  ];
}

export function databaseNeeds({ config, addresses, resources }: Session): Need[] {
  const { NOTIFICATION_POSTGRES_OWNER_DSN: ownerDsn, NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: timeoutMs } =
    config.values;
  const { postgresDsn } = addresses;
  const migrationDsn = ownerDsn ?? postgresDsn;
  /** As PostgreSQL sees it: a pooler may log in with another role. */
  const role = async (): Promise<string> => {
    const { rows } = await resources.db.query<{ name: string }>('SELECT current_user AS name');
    return rows[0]!.name;
  };
  const schema: Need = {
    name: 'database schema',
    async look() {
      const pending = await pendingMigrations(migrationDsn);
      return pending.length === 0
        ? { detail: 'all migrations are applied' }
        : { lack: 'created', detail: pending.join(', ') };
    },
    async make() {
      if (!isPooled(migrationDsn)) return migrate(migrationDsn);
      throw new OperationFailedError(
        'migrations cannot go through a pooler: NOTIFICATION_POSTGRES_OWNER_DSN must lead to PostgreSQL itself, without pgbouncer=true; or give --skip-database',
      );
    },
  };
  const rights = (dsn: string): Need => ({
    name: 'database role',
    async look() {
      const name = await role();
      const grants = await grantToService(dsn, name, { isDryRun: true });
      return grants.length === 0
        ? { detail: `${name} may read and write rows` }
        : { lack: 'changed', detail: `${name} lacked ${grants.length} of its rights` };
    },
    make: async () => grantToService(dsn, await role(), { isDryRun: false }),
  });
  const setSessions = (isDryRun: boolean) =>
    setSessionDefaults(postgresDsn, { statementTimeoutMs: timeoutMs }, { isDryRun });
  const sessions: Need = {
    name: 'database sessions',
    async look() {
      const isChange = await setSessions(true);
      const detail = `statements of ${await role()} end after ${durationOf(timeoutMs)}, times are in UTC`;
      return { ...(isChange ? { lack: 'changed' } : {}), detail };
    },
    make: () => setSessions(false),
  };
  return [
    schema,
    ...(ownerDsn === undefined ? [] : [rights(ownerDsn)]),
    ...(isPooled(postgresDsn) ? [sessions] : []),
  ];
}

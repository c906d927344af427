/** `setup`: what the service needs to find, made once and as often as you like. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { migrate, pendingMigrations } from '../migrations/migrate.ts';
import { loadConfig, needsOf } from '../config/load.ts';
import { action, helpWith } from './command.ts';
import { EXIT } from './exit-codes.ts';
import { parseDuration } from './options.ts';
import { countOf, printJson, printTable, report } from './output.ts';
import type { Session } from './session.ts';
import { allReached, check, openSession } from './session.ts';
import { bounded } from '../client/temporal.ts';
import type { SetupNeeds, SetupStep } from './setup-steps.ts';
import { setUpNamespace, setUpSchedule, setUpSearchAttributes } from './setup-steps.ts';

interface SetupOptions {
  retention?: number;
  dryRun?: boolean;
  database: boolean;
}

const WHAT_IT_DOES = `
What is there stays as it is. The namespace is TEMPORAL_NAMESPACE; schedules are those of NOTIFICATION_ROLES. On Temporal
Cloud, namespaces and search attributes are made with its own tools; setup then says which, and does the rest.
`;

export function addSetupCommand(program: Command): void {
  program
    .command('setup')
    .description('Create what is missing: namespace, search attributes, schedules, database schema.')
    .addOption(
      new Option(
        '--retention <duration>',
        'how long closed workflows are kept: 72h in a new namespace; given, changed in one that is there',
      ).argParser(parseDuration),
    )
    .option('--dry-run', 'show what is missing, and create nothing; exit code 1 when something is')
    .option('--no-database', 'leave PostgreSQL alone; the service migrates its schema at start')
    .addHelpText(
      'after',
      WHAT_IT_DOES +
        helpWith(
          'galaxy-notify setup',
          'galaxy-notify setup --retention 7d',
          'galaxy-notify setup --dry-run --json',
        ),
    )
    .action(
      action<SetupOptions>(async ({ json, ...options }) => {
        const session = openSession(loadConfig());
        try {
          const steps = await carryOut(session, options);
          if (json) printJson({ steps });
          else
            printTable(
              ['STEP', 'STATUS', 'DETAIL'],
              steps.map(({ name, status, detail }) => [name, status, detail]),
              { flexible: 2 },
            );
          const missing = steps.filter(({ status }) => status === 'missing').length;
          if (missing > 0) report(`${countOf(missing, 'step')} to do; run it without --dry-run`);
          return missing > 0 ? EXIT.failed : EXIT.done;
        } finally {
          await session.close();
        }
      }),
    );
}

async function carryOut(session: Session, options: SetupOptions): Promise<SetupStep[]> {
  const { config, resources, addresses } = session;
  const { temporal, namespace } = resources;
  const isDryRun = options.dryRun ?? false;
  const { searchAttributes, schedules } = needsOf(config);
  const needs: SetupNeeds = {
    temporal,
    namespace,
    searchAttributes,
    schedules,
    isDryRun,
    ...(options.retention === undefined ? {} : { retentionMs: options.retention }),
  };
  await reachServers(session, options);

  const steps = [await setUpNamespace(needs)];
  // Nothing can be asked of a namespace that is not there.
  const isThere = steps[0]!.status !== 'missing' || !isDryRun || (await exists(session));
  if (isThere) {
    steps.push(await setUpSearchAttributes(needs));
    for (const schedule of schedules) steps.push(await setUpSchedule(needs, schedule));
  } else {
    steps.push({ name: 'search attributes', status: 'missing', detail: searchAttributes.join(', ') });
    for (const { id } of schedules) {
      steps.push({ name: `schedule ${id}`, status: 'missing', detail: 'in the new namespace' });
    }
  }
  if (options.database) steps.push(await setUpDatabase(addresses.postgresDsn, isDryRun));
  return steps;
}

/** Unlike other commands, this one does not need the namespace to be there. */
async function reachServers({ resources, reach }: Session, { database }: SetupOptions): Promise<void> {
  const { temporal } = resources;
  await allReached([
    check('Temporal', 'TEMPORAL_ADDRESS', () =>
      bounded(temporal, () => temporal.workflowService.getSystemInfo({})),
    ),
    ...(database ? [reach('postgres')] : []),
  ]);
}

const exists = ({ reach }: Session): Promise<boolean> =>
  reach('temporal').then(
    () => true,
    () => false,
  );

async function setUpDatabase(dsn: string, isDryRun: boolean): Promise<SetupStep> {
  const name = 'database schema';
  const pending = await pendingMigrations(dsn);
  if (pending.length === 0) return { name, status: 'ok', detail: 'all migrations are applied' };
  const detail = pending.join(', ');
  if (isDryRun) return { name, status: 'missing', detail };
  await migrate(dsn);
  return { name, status: 'created', detail };
}

/** `setup`: creates what the service needs and what is missing; it may run as often as you like. */
import type { Command } from 'commander';
import { given } from '../api/given.ts';
import { allOf } from '../api/within.ts';
import { OperationFailedError } from '../client/errors.ts';
import { bounded } from '../client/temporal.ts';
import { needsOf } from '../config/load.ts';
import { EXIT } from './command.ts';
import { define, option } from './definition.ts';
import type { Need, Standing } from './needs.ts';
import { databaseNeeds, temporalNeeds } from './needs.ts';
import { durationOption } from './options.ts';
import { countOf, printItems, report } from './output.ts';
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

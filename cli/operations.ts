/** `operations`: operations on many items, which go on without the command. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { given } from '../api/given.ts';
import { DEFAULT_REPLAY_RATE, MAX_REPLAY_RATE } from '../client/lists.ts';
import { NotFoundError } from '../client/errors.ts';
import type { ChosenOperation, OperationRequest, OperationView } from '../client/operations.ts';
import type { Operator } from '../client/operator.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, UsageError, action, requireYes } from './command.ts';
import type { Filters, Form } from './definition.ts';
import { define, filterOf, form, list, option } from './definition.ts';
import type { Requested } from './options.ts';
import { parseCount, reasonOption, requestOf, requestedByOption, yesOption } from './options.ts';
import type { Columns } from './output.ts';
import { capital, countOf, printItems, printJson, printLine, printView, report } from './output.ts';
import { untilInterrupted, withProgress } from './progress.ts';
import type { Dependency, Session } from './session.ts';
import { withSession } from './session.ts';

/** Longer than any operation: an operator who follows one may stop at any time. */
const FOLLOW_LIMIT_MS = 30 * 86_400_000;

export interface OperationCommandOptions extends BulkOptions {
  rate: number;
  reason?: string;
  detach?: boolean;
}

/** @param things in the plural, e.g. `jobs`. */
export const operationOptions = (things: string): Option[] => [
  ...bulkOptions(things),
  new Option('--rate <n>', `${things} started per second`)
    .argParser(parseCount(1, MAX_REPLAY_RATE))
    .default(DEFAULT_REPLAY_RATE),
  ...[new Option('--detach', 'start it, and do not wait for its end'), reasonOption()],
];

/** @param sizeOf how many are in a group. */
export const inGroups = <Group>(
  groups: Group[],
  sizeOf: (group: Group) => number,
): Pick<Matching<Group>, 'matching' | 'groups'> => ({
  matching: groups.reduce((total, group) => total + sizeOf(group), 0),
  groups,
});

/** What a command does to many. */
export interface Bulk<Group> extends Omit<Matching<Group>, 'matching' | 'groups'> {
  /** How many match. */
  count(operator: Operator): Promise<Pick<Matching<Group>, 'matching' | 'groups'>>;
  /** Its operator has named each of them, which is a yes. */
  isNamed?: boolean;
  start(operator: Operator, request: OperationRequest): Promise<ChosenOperation>;
  /** What is said and waited for once it is done. */
  finish?:
    ((operator: Operator, begun: ChosenOperation, signal: AbortSignal) => Promise<ExitCode>) | undefined;
}

/** Shows what matches, starts the operation and follows it. @returns the exit code of the command. */
export function operate<Group extends object>(
  options: OperationCommandOptions,
  bulk: Bulk<Group>,
): Promise<ExitCode> {
  const { isNamed, finish } = bulk;
  const servers: Dependency[] = ['postgres', ...(options.dryRun ? [] : ['temporal' as const])];
  return withSession(servers, async ({ operator }) => {
    const found = { ...bulk, ...(await bulk.count(operator)) };
    const end = endBeforeBulk(found, isNamed ? { ...options, yes: true } : options);
    if (end !== undefined) return end;
    const begun = await bulk.start(operator, {
      ...requestOf(options),
      ratePerSecond: options.rate,
      // Nothing less than matches: some may have come to match since they were counted.
      ...given({ limit: options.limit }),
    });
    return followOperation(operator, begun, options, finish && ((signal) => finish(operator, begun, signal)));
  });
}

interface OneOrMany<Filter, Options, Group> extends Omit<Form, 'args' | 'options'> {
  /** The argument that names one. */
  id: NonNullable<Form['args']>[number];
  /** One of the things, e.g. `a job`, and all of them. */
  a: string;
  things: string;
  filters: Filters;
  options?: Option[];
  /** Whether `one` has a dry run. */
  oneHasDryRun?: boolean;
  one(id: string, options: Options): Promise<ExitCode>;
  many(filter: Filter, options: Options): Bulk<Group>;
}

/** Adds a command about one thing, which is named, or about all that match filters. */
export function addOneOrMany<
  Filter extends object,
  Options extends OperationCommandOptions,
  Group extends object,
>(
  group: Command,
  {
    id,
    a,
    things,
    filters,
    options = [],
    oneHasDryRun,
    one,
    many,
    ...help
  }: OneOrMany<Filter, Options, Group>,
): void {
  form(group, {
    ...{ ...help, args: [id] },
    options: [...Object.values(filters), ...operationOptions(things), ...options],
  }).action(
    action<Options, [string | undefined]>((given, named) => {
      const filter = filterOf<Filter>(filters, given);
      const hasFilter = Object.keys(filter).length > 0;
      if (named === undefined && !hasFilter)
        throw new UsageError(`say which: ${a} id, or filters; --since 30d for everything of 30 days`);
      if (named !== undefined && hasFilter) throw new UsageError(`${a} that is named takes no filters`);
      if (named !== undefined && given.dryRun && !oneHasDryRun)
        throw new UsageError(`${a} that is named has no dry run: see it with show`);
      return named === undefined ? operate(given, many(filter, given)) : one(named, given);
    }),
  );
}

const OPERATION = ['<operation>', 'its id, as operations list shows it'] as const;

export function addTo(operations: Command): void {
  list(operations, {
    description: 'List operations, newest first.',
    examples: ['operations list'],
    read: ({ operator }: Session) => operator.operations.list,
    columns: ['createdAt', 'operationId', 'status', 'done', 'total', 'requestedBy', 'filter'],
  });

  form(operations, {
    name: 'show',
    description: 'Show an operation: how far it is, and how the routes stand that it was about.',
    args: [OPERATION],
    options: [option('--follow', 'wait for its end')],
    examples: ['operations show replay-2026-01-31-5f0c1a2b --follow'],
  }).action(
    action<{ follow?: boolean }, [string]>((options, operationId) =>
      withSession(['postgres'], async ({ operator }) => {
        const view = await operator.operations.show(operationId);
        if (options.follow && view.endedAt === undefined) {
          return followOperation(operator, view, options, () => showOne(operator, operationId, options));
        }
        return showOne(operator, operationId, options);
      }),
    ),
  );

  for (const [verb, description] of [
    ['pause', 'Pause an operation: nothing more is begun until it is resumed.'],
    ['resume', 'Let an operation go on, also one that lost its workflow.'],
    ['abort', 'End an operation: what is done stays done.'],
  ] as const) {
    define(operations, {
      ...{ name: verb, description, args: [OPERATION], options: [requestedByOption()] },
      examples: [`operations ${verb} replay-2026-01-31-5f0c1a2b`],
      needs: ['postgres', 'temporal'],
      run: ({ operator }, { requestedBy }: Requested, operationId: string) =>
        operator.operations[verb](operationId, { requestedBy }),
      print: lineOf,
    });
  }
}

/**
 * Waits for the end of an operation, unless it is not to be waited for.
 *
 * @param finish what is to be said once it is done; by default how it ended.
 */
async function followOperation(
  operator: Operator,
  { operationId, total }: ChosenOperation,
  { detach, json }: GlobalOptions & { detach?: boolean; wait?: boolean },
  finish: (signal: AbortSignal) => Promise<ExitCode> | ExitCode = () => EXIT.done,
): Promise<ExitCode> {
  report(`operation ${operationId} goes on by itself: operations show, pause or abort ${operationId}`);
  if (detach) {
    if (json) printJson(await operator.operations.show(operationId));
    return EXIT.done;
  }
  return untilInterrupted(async (signal) => {
    const ended = await withProgress(total, 'done', (update) =>
      operator.operations.follow(operationId, {
        ...{ limitMs: FOLLOW_LIMIT_MS, signal },
        onProgress: ({ done, status }) => update(done, status === 'running' ? '' : status),
      }),
    );
    if (ended.endedAt === undefined) {
      report(`${lineOf(ended)}; it goes on`);
      return EXIT.interrupted;
    }
    if (!json) printLine(lineOf(ended));
    const code = await finish(signal);
    if (json && finish.length === 0) printJson(ended);
    return ended.status === 'done' ? code : EXIT.failed;
  });
}

const lineOf = ({ kind, status, done, total, ordered }: OperationView): string =>
  `${kind} ${status}: ${done} of ${total} done${done === ordered ? '' : `, ${done - ordered} of them had nothing to do`}`;

async function showOne(operator: Operator, operationId: string, { json }: GlobalOptions): Promise<ExitCode> {
  const { operations } = operator;
  const view = await operations.show(operationId);
  const isOfRoutes = view.kind === 'replay' || view.kind === 'cancel';
  const outcome = isOfRoutes ? await operations.outcome(operationId) : undefined;
  const found = { ...view, ...given({ outcome }) };
  if (json) printJson(found);
  else printView(found);
  return EXIT.done;
}

// --- What matches is shown before --------------------------------------------------------------------------

export interface BulkOptions extends GlobalOptions {
  limit?: number;
  dryRun?: boolean;
  yes?: boolean;
  requestedBy: string;
}

/** @param things in the plural, e.g. `jobs`. */
export const bulkOptions = (things: string): Option[] => [
  new Option('--limit <n>', `${things} at most, the oldest first`).argParser(parseCount(1, 1_000_000)),
  new Option('--dry-run', 'show what matches, and do nothing'),
  yesOption(),
  requestedByOption(),
];

/** What is done to things, and what was done to them then. */
const DONE = {
  replay: 'replayed',
  cancel: 'cancelled',
  republish: 'published again',
} as const;

/** What a command is to do to many. */
interface Matching<Group> {
  /** A word for one of the things, e.g. `job`. */
  what: string;
  verb: keyof typeof DONE;
  /** Text for an empty list. */
  nothing: string;
  matching: number;
  /** What they have in common, which is shown before. */
  groups?: Group[] | undefined;
  columns?: Columns<Group> | undefined;
}

/** How many it is done to. */
const totalOf = (matching: number, { limit = Infinity }: BulkOptions): number => Math.min(matching, limit);

/**
 * Shows what matches.
 *
 * @returns the exit code of a dry run; undefined: the operator has said yes.
 * @throws NotFoundError when nothing matches; UsageError without a yes.
 */
export function endBeforeBulk<Group extends object>(
  { what, verb, nothing, matching, groups, columns }: Matching<Group>,
  options: BulkOptions,
): ExitCode | undefined {
  const { json, dryRun } = options;
  const total = totalOf(matching, options);
  if (json && dryRun) {
    printJson({ matching, [`would${capital(verb)}`]: total, ...(groups ? { groups } : {}) });
  }
  if (matching === 0) throw new NotFoundError(nothing);
  if (!json && groups && columns) printItems(groups, columns);
  const all = countOf(total, what) + (total < matching ? ` of ${matching}, the oldest first` : '');
  if (dryRun) {
    report(`${all} would be ${DONE[verb]}; nothing was done`);
    return EXIT.done;
  }
  requireYes(`this would ${verb} ${all}`, options);
  return undefined;
}

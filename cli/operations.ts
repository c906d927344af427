/** `operations`: operations on many items, which go on without the command; and `actions`: who asked for what. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { given } from '../api/given.ts';
import { DEFAULT_REPLAY_RATE, MAX_REPLAY_RATE } from '../client/lists.ts';
import { NotFoundError } from '../client/errors.ts';
import type {
  ChosenOperation,
  OperationFilter,
  OperationGroup,
  OperationView,
} from '../client/operations.ts';
import { OPERATION_KINDS } from '../client/operations.ts';
import type { Operator } from '../client/operator.ts';
import type { Correction } from '../api/intent/mending.ts';
import type { OperationKind } from '../workflows/operation-contract.ts';
import type { ExitCode, GlobalOptions } from './command.ts';
import { EXIT, UsageError, action, requireYes, untilInterrupted, withProgress } from './command.ts';
import type { Filters, Form } from './definition.ts';
import { define, filterOf, form, list, option } from './definition.ts';
import type { Requested } from './options.ts';
import { parseCount, reasonOption, requestOf, requestedByOption, spanOptions, yesOption } from './options.ts';
import { capital, countOf, printItems, printJson, printLine, printView, report } from './output.ts';
import type { Dependency, Session } from './session.ts';
import { withSession } from './session.ts';

/** Longer than any operation: an operator who follows one may stop at any time. */
const FOLLOW_LIMIT_MS = 30 * 86_400_000;

export interface OperationCommandOptions extends BulkOptions {
  rate: number;
  reason?: string;
  detach?: boolean;
}

/** A command that does something to many: to those that match filters, or that its arguments name. */
interface OperationCommand<Kind extends OperationKind, Options> extends Omit<Form, 'args' | 'options'> {
  kind: Kind;
  /** Arguments that name some, by the field of the filter that each sets. */
  named: Readonly<Record<string, NonNullable<Form['args']>[number]>>;
  filters: Filters;
  options?: Option[];
  /** A word for one of the things, e.g. `job`. */
  what: string;
  verb: keyof typeof DONE;
  /** Of the groups that are shown before; the first one counts what is in a group. */
  columns: readonly (keyof OperationGroup<Kind> & string)[];
  /** Looks at what is named, and shows what else there is to know of it. @throws what refuses it. */
  look?(operator: Operator, filter: OperationFilter<Kind>, options: Options): Promise<void>;
  correctionOf?(options: Options): Correction;
  /** What is said and waited for once it is done; undefined: how it ended. */
  finish?(
    options: Options,
  ): ((operator: Operator, begun: ChosenOperation, signal: AbortSignal) => Promise<ExitCode>) | undefined;
}

/** Adds a command that shows what matches, starts an operation, and follows it. */
export function addOperation<Kind extends OperationKind, Options extends OperationCommandOptions>(
  group: Command,
  definition: OperationCommand<Kind, Options>,
): void {
  const {
    kind,
    named,
    filters,
    options: own = [],
    what,
    verb,
    columns,
    look,
    correctionOf,
    finish,
  } = definition;
  const things = `${what}s`;
  const options = [
    ...[...Object.values(filters), ...bulkOptions(things)],
    new Option('--rate <n>', `${things} started per second`)
      .argParser(parseCount(1, MAX_REPLAY_RATE))
      .default(DEFAULT_REPLAY_RATE),
    ...[new Option('--detach', 'start it, and do not wait for its end'), reasonOption(), ...own],
  ];
  form(group, { ...definition, args: Object.values(named), options }).action(
    action<Options, (string | undefined)[]>((asked, ...ids) => {
      const names = Object.fromEntries(Object.keys(named).map((field, index) => [field, ids[index]]));
      const filter = given({ ...filterOf(filters, asked), ...names }) as OperationFilter<Kind>;
      if (Object.keys(filter).length === 0)
        throw new UsageError('say which: by an id, or by filters; --since 30d for everything of 30 days');
      // Only filters reach what the operator has not looked at.
      const isNamed = ids[0] !== undefined;
      const servers: Dependency[] = ['postgres', ...(asked.dryRun ? [] : ['temporal' as const])];
      return withSession(servers, async ({ operator }) => {
        if (isNamed) await look?.(operator, filter, asked);
        const groups = await operator.operations.preview(kind, filter);
        const matching = groups.reduce((total, one) => total + Number(one[columns[0]!]), 0);
        const { json, dryRun, limit = Infinity } = asked;
        const total = Math.min(matching, limit);
        if (json && dryRun) printJson({ matching, [`would${capital(verb)}`]: total, groups });
        if (matching === 0) throw new NotFoundError(OPERATION_KINDS[kind].nothing);
        if (!json) printItems(groups, columns);
        const all = countOf(total, what) + (total < matching ? ` of ${matching}, the oldest first` : '');
        if (dryRun) {
          report(`${all} would be ${DONE[verb]}; nothing was done`);
          return EXIT.done;
        }
        if (!isNamed) requireYes(`this would ${verb} ${all}`, asked);
        const request = {
          ...requestOf(asked),
          ratePerSecond: asked.rate,
          // Nothing less than matches: some may have come to match since they were counted.
          ...given({ limit: asked.limit }),
        };
        const begun = await operator.operations.begin(kind, filter, request, correctionOf?.(asked));
        const last = finish?.(asked);
        return followOperation(operator, begun, asked, last && ((signal) => last(operator, begun, signal)));
      });
    }),
  );
}

const OPERATION = ['<operation>', 'its id, as operations list shows it'] as const;

export function addOperations(operations: Command): void {
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

export function addActions(actions: Command): void {
  list(actions, {
    description:
      'List what operators asked for, newest first: pauses, replays, cancellations and all other changes, by whom and why.',
    filters: {
      action: option('--action <command>', 'this command only, such as "mobile replay"'),
      target: option('--target <text>', 'what it was done to'),
      requestedBy: option('--by <name>', 'who asked'),
      ...spanOptions('asked'),
    },
    examples: ['actions list --since 7d', 'actions list --target game_lobby'],
    read: ({ operator }: Session) => operator.actions.list,
    columns: ['actedAt', 'requestedBy', 'dbUser', 'action', 'target', 'detail'],
  });
}

/**
 * Waits for the end of an operation, unless it is not to be waited for.
 *
 * @param finish says what is to be said once it is done, as JSON too; by default how it ended.
 */
async function followOperation(
  operator: Operator,
  { operationId, total }: ChosenOperation,
  { detach, json }: GlobalOptions & { detach?: boolean; wait?: boolean },
  finish?: (signal: AbortSignal) => Promise<ExitCode>,
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
    else if (!finish) printJson(ended);
    const code = (await finish?.(signal)) ?? EXIT.done;
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

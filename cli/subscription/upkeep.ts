/** `subscriptions`: what starts them over, pins routers, takes queues over and shows counters. */
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import type { RouterAddress } from '../../api/subscription/router-address.ts';
import { ADDRESS_FORMS, AddressError, parseRouterAddress } from '../../api/subscription/router-address.ts';
import type { RetryFilter } from '../../client/subscription/choices.ts';
import type { RouterState, RouterStates } from '../../workflows/subscription/contract.ts';
import type { GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, helpWith, readSecret, showPage } from '../command.ts';
import { shell } from '../invocation.ts';
import type { Requested } from '../options.ts';
import { limitOption, parseCount, requestedByOption } from '../options.ts';
import { countOf, printJson, printLine, printTable, report } from '../output.ts';
import type { OperationCommandOptions } from '../operations.ts';
import { operate, withOperationOptions } from '../operations.ts';
import { withSession } from '../session.ts';

export const IDS_HELP = 'An id that begins with a dash goes behind --, as in: subscriptions show -- -1xQ…';

export function addUpkeepCommands(subscriptions: Command): void {
  addRetry(subscriptions);
  addTrust(subscriptions);
  addRouters(subscriptions);
  addImport(subscriptions);
  addStatistics(subscriptions);
}

interface RetryCommandOptions extends OperationCommandOptions {
  user?: number;
  all?: boolean;
}

function addRetry(subscriptions: Command): void {
  withOperationOptions(subscriptions.command('retry'), 'connections', 'started over')
    .description(
      'Start subscriptions over that were given up or could not be read. Mend the cause first: subscriptions list --given-up',
    )
    .argument('[connection id...]', 'which, without being asked; or --user or --all')
    .option('--user <n>', 'those of one user', parseCount(0, 999_999_999))
    .option('--all', 'all of them')
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify subscriptions retry AbCdEfGhIjKlMnOp',
        'galaxy-notify subscriptions retry --all --dry-run',
        'galaxy-notify subscriptions retry --all --yes',
        IDS_HELP,
      ),
    )
    .action(
      action<RetryCommandOptions, [string[]]>((options, connIds) => {
        const { user, all } = options;
        if ([connIds.length > 0, user !== undefined, all].filter(Boolean).length !== 1) {
          throw new UsageError('give connection ids, or --user, or --all');
        }
        const filter: RetryFilter = {
          ...(connIds.length > 0 ? { connIds } : {}),
          ...(user === undefined ? {} : { userId: user }),
        };
        return operate(options, {
          what: 'subscription',
          verb: 'retry',
          count: async ({ subscriptions }) => ({ matching: await subscriptions.countRetryable(filter) }),
          nothing: 'no subscription that was given up or could not be read matches',
          isNamed: connIds.length > 0,
          begin: ({ operations }, request) => operations.recreate(filter, request),
        });
      }),
    );
}

function addTrust(subscriptions: Command): void {
  subscriptions
    .command('trust')
    .description(
      'Pin a messaging or notification router, with all that is on it, to another fingerprint. The router is tried first under that.',
    )
    .argument(
      '<address>',
      `the router: ${ADDRESS_FORMS.smp} or ntf://…; - for standard input, which must say it with a password`,
    )
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify subscriptions trust smp://<fingerprint>@smp.example.com',
        'galaxy-notify subscriptions trust ntf://<fingerprint>@ntf.example.com',
        'galaxy-notify subscriptions trust - <address.txt',
        'New tokens take the fingerprint of a notification router from NOTIFICATION_SUBSCRIPTION_NTF_SERVERS.',
      ),
    )
    .action(
      action<Requested & GlobalOptions, [string]>(async ({ json, requestedBy }, address) => {
        const { host, port, keyHash } = await readRouter(address);
        const server = { host, port, keyHash };
        await withSession(['postgres', 'temporal'], async ({ operator }) => {
          await operator.subscriptions.trust(server, { requestedBy });
          if (json) printJson({ server });
          else printLine(`${host}:${port} is trusted under this fingerprint`);
        });
      }),
    );
}

function addRouters(subscriptions: Command): void {
  subscriptions
    .command('routers')
    .description(
      'Ask each router of the agent whether it is there: round trip, versions, sessions and the last error, as one process of the service sees them. Exit code 1 when one does not answer.',
    )
    .addHelpText(
      'after',
      helpWith('galaxy-notify subscriptions routers', 'galaxy-notify subscriptions routers --json'),
    )
    .action(
      action<GlobalOptions>(({ json }) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          const states = await operator.subscriptions.routers();
          if (json) printJson(states);
          else printRouters(states);
          return states.routers.some(({ error }) => error !== undefined) ? EXIT.failed : EXIT.done;
        }),
      ),
    );
}

function printRouters({ process: asked, routers, hasMore }: RouterStates): void {
  printTable(
    ['KIND', 'ROUTER', 'FINGERPRINT', 'VERSION', 'ROUND TRIP', 'HELD SINCE', 'LAST ERROR'],
    routers.map((router) => [
      router.kind,
      `${router.host}:${router.port}`,
      router.keyHash,
      router.version === undefined
        ? undefined
        : `${router.version} of ${router.routerVersions?.join(' to ')}`,
      router.roundTripMs === undefined ? router.error : `${router.roundTripMs} ms`,
      heldSince(router),
      router.lastError && `${new Date(router.lastError.atMs).toISOString()} ${router.lastError.error}`,
    ]),
  );
  report(
    `${countOf(routers.length, 'router')}${hasMore ? ', and more that were not' : ''} asked by ${asked}`,
  );
}

function heldSince({ heldSinceMs, sessions }: RouterState): string | undefined {
  if (heldSinceMs === undefined) return undefined;
  return `${new Date(heldSinceMs).toISOString()} (${countOf(sessions, 'session')})`;
}

function addImport(subscriptions: Command): void {
  subscriptions
    .command('import')
    .description(
      'Take over queues that an application has already: a JSON list of them, with their keys, from a file or standard input.',
    )
    .argument('[file]', 'without it standard input, which leaves no keys on a disk')
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith(
        'galaxy-notify subscriptions import queues.json',
        'One queue: {"userId": 1, "server": "smp://<fingerprint>@smp.example.com", "recipientId": "…",',
        '"recipientPrivateKey": "…"}; optional are connId, enableNotifications, and notifier',
        '{notifierId, publicKey, privateKey, dhSecret}. The server is an address, or {host, port, keyHash}. Ids, keys,',
        'secrets and fingerprints are base64url.',
      ),
    )
    .action(
      action<Requested & GlobalOptions, [string?]>(({ json, requestedBy }, file) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          const imported = await operator.subscriptions.import(await readList(file), { requestedBy });
          const connIds = imported.flatMap((one) => ('connId' in one ? [one.connId] : []));
          const errors = imported.flatMap((one) => ('error' in one ? [one.error] : []));
          if (json) printJson({ imported });
          else for (const connId of connIds) printLine(connId);
          for (const error of errors) report(`not imported: ${error}`);
          return errors.length > 0 ? EXIT.failed : EXIT.done;
        }),
      ),
    );
}

/** @throws UsageError that quotes nothing of the file: it holds keys. */
async function readList(file: string | undefined): Promise<unknown[]> {
  let content: string;
  try {
    content = file === undefined ? await text(shell().stdin) : await readFile(file, 'utf8');
  } catch (error) {
    throw new UsageError(
      `the file cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown reason'}`,
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch {
    throw new UsageError('what is imported must be JSON');
  }
  if (!Array.isArray(value) || value.length === 0)
    throw new UsageError('what is imported must be a list of queues');
  return value as unknown[];
}

function addStatistics(subscriptions: Command): void {
  subscriptions
    .command('statistics')
    .description("Show the counters of the agent's work, by user and router.")
    .option('--user <n>', 'of one user', parseCount(0, 999_999_999))
    .option('--reset', 'set all of them back instead')
    .addOption(requestedByOption())
    .addOption(limitOption())
    .addHelpText('after', helpWith('galaxy-notify subscriptions statistics --user 1'))
    .action(
      action<{ user?: number; reset?: boolean; limit: number } & Requested & GlobalOptions>(
        ({ user, reset, requestedBy, ...options }) =>
          withSession(reset ? ['postgres', 'temporal'] : ['postgres'], async ({ operator }) => {
            if (!reset) {
              const page = await operator.subscriptions.statistics(user, options.limit);
              return showPage(page, options, (views) =>
                printTable(
                  ['USER', 'ROUTER', 'COUNTER', 'VALUE', 'UPDATED'],
                  views.map((view) => [view.userId, view.router, view.counter, view.value, view.updatedAt]),
                ),
              );
            }
            if (user !== undefined) throw new UsageError('--reset is about all users');
            const counters = await operator.subscriptions.resetStatistics({ requestedBy });
            if (options.json) printJson({ counters });
            else printLine(`${countOf(counters, 'counter')} set back`);
            return EXIT.done;
          }),
      ),
    );
}

/** @throws UsageError for an invalid address, or an argument with a password. */
async function readRouter(argument: string): Promise<RouterAddress> {
  try {
    return parseRouterAddress(await readAddress(argument));
  } catch (error) {
    if (error instanceof AddressError) throw new UsageError(error.message);
    throw error;
  }
}

/** @returns the argument, or what standard input says for `-`. @throws UsageError for an argument with a password. */
export async function readAddress(argument: string): Promise<string> {
  const hasPassword = /^\w+:\/\/[^@]*:.*@/s.test(argument);
  return argument === '-' || hasPassword ? readSecret(argument, 'an address with a password') : argument;
}

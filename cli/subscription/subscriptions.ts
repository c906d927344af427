/** `subscriptions`: connections of the agent, and whether they are notified. */
import type { Command } from 'commander';
import { Option } from 'commander';
import type { GlobalOptions } from '../command.ts';
import { action, helpWith, showPage } from '../command.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError } from '../command.ts';
import type { Requested } from '../options.ts';
import { limitOption, parseCount, requestedByOption } from '../options.ts';
import { countOf, printFields, printJson, printLine, printTable, report } from '../output.ts';
import { withSession } from '../session.ts';
import type {
  AgentView,
  SubscriptionFilter,
  SubscriptionView,
} from '../../client/subscription/subscriptions.ts';

import { addAbandon } from './abandon.ts';
import { IDS_HELP, addUpkeepCommands } from './upkeep.ts';

export function addSubscriptionCommands(program: Command): void {
  const subscriptions = program
    .command('subscriptions')
    .description('Notification subscriptions: connections of the agent, and whether they are notified');
  addToggle(subscriptions);
  addDelete(subscriptions);
  addList(subscriptions);
  addShow(subscriptions);
  addStatus(subscriptions);
  addWake(subscriptions);
  addUpkeepCommands(subscriptions);
  addAbandon(subscriptions);
}

function addToggle(subscriptions: Command): void {
  subscriptions
    .command('toggle')
    .description('Turn notifications of connections on or off.')
    .argument('<connection id...>', 'which')
    .addOption(new Option('--on', 'turn them on').conflicts('off'))
    .option('--off', 'turn them off')
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify subscriptions toggle --off AbCdEfGhIjKlMnOp', IDS_HELP))
    .action(
      action<{ on?: boolean; off?: boolean } & Requested & GlobalOptions, [string[]]>((options, connIds) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          const { on, off, json, requestedBy } = options;
          if (!on && !off) throw new UsageError('give --on or --off');
          const result = await operator.subscriptions.toggle(connIds, on === true, { requestedBy });
          if (json) printJson(result);
          else
            printLine(`notifications ${on ? 'on' : 'off'}: ${countOf(result.changed, 'connection')} changed`);
          return unknownOf(result.unknown);
        }),
      ),
    );
}

function addDelete(subscriptions: Command): void {
  subscriptions
    .command('delete')
    .description(
      'Delete connections and their subscriptions. There is no way back. The queues stay on their routers for the application.',
    )
    .argument('<connection id...>', 'which')
    .option('-y, --yes', 'it is meant')
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify subscriptions delete --yes AbCdEfGhIjKlMnOp', IDS_HELP))
    .action(
      action<{ yes?: boolean } & Requested & GlobalOptions, [string[]]>(
        ({ yes, json, requestedBy }, connIds) =>
          withSession(['postgres', 'temporal'], async ({ operator }) => {
            if (!yes) throw new UsageError('what is deleted does not come back: add --yes');
            const result = await operator.subscriptions.delete(connIds, { requestedBy });
            if (json) printJson(result);
            else printLine(`${countOf(result.deleted, 'connection')} deleted`);
            return unknownOf(result.unknown);
          }),
      ),
    );
}

interface ListOptions {
  user?: number;
  status?: string;
  givenUp?: boolean;
  unreadable?: boolean;
  limit: number;
}

function addList(subscriptions: Command): void {
  subscriptions
    .command('list')
    .description('List connections with their subscriptions, newest change first.')
    .option('--user <n>', 'of one user', parseCount(0, 999_999_999))
    .addOption(
      new Option('--status <status>', 'how the subscription stands').choices([
        'new',
        'key',
        'created',
        'off',
        'deleted',
      ]),
    )
    .option('--given-up', 'only those that a worker gave up on')
    .option('--unreadable', 'only those whose keys did not open')
    .addOption(limitOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify subscriptions list', 'galaxy-notify subscriptions list --given-up --json'),
    )
    .action(
      action<ListOptions & GlobalOptions>(({ user, status, givenUp, unreadable, ...options }) =>
        withSession(['postgres'], async ({ operator }) => {
          const filter: SubscriptionFilter = {
            ...(user === undefined ? {} : { userId: user }),
            ...(status === undefined ? {} : { status }),
            ...(givenUp ? { isGivenUp: true } : {}),
            ...(unreadable ? { isUnreadable: true } : {}),
          };
          return showPage(await operator.subscriptions.list(filter, options.limit), options, printViews);
        }),
      ),
    );
}

function addShow(subscriptions: Command): void {
  subscriptions
    .command('show')
    .description('Show a connection with its subscription.')
    .argument('<connection id>', 'which')
    .addHelpText('after', helpWith('galaxy-notify subscriptions show AbCdEfGhIjKlMnOp', IDS_HELP))
    .action(
      action<GlobalOptions, [string]>(({ json }, connId) =>
        withSession(['postgres'], async ({ operator }) => {
          const view = await operator.subscriptions.show(connId);
          if (json) return printJson(view);
          printFields([
            ['connection', view.connId],
            ['user', view.userId],
            ['notifications', view.wantsNotifications ? 'on' : 'off'],
            ['messaging router', view.messagingRouter],
            ['credentials', view.hasCredentials ? 'yes' : 'no'],
            ['status', view.status ?? 'no record'],
            ['notification router', view.notificationRouter],
            ['next', view.action],
            ['not before', view.actionAt],
            ['updated', view.updatedAt],
            ['link', view.link],
          ]);
          if (isGivenUp(view)) report('a worker gave up; start it over with: subscriptions retry');
          if (view.isUnreadable) report('its keys did not open; with them back: subscriptions retry');
        }),
      ),
    );
}

function addStatus(subscriptions: Command): void {
  subscriptions
    .command('status')
    .description('Show how the agent stands: its token, its subscriptions, and what its supervisor does.')
    .addHelpText('after', helpWith('galaxy-notify subscriptions status'))
    .action(
      action<GlobalOptions>(({ json }) =>
        withSession(['postgres'], async ({ operator }) => {
          const view = await operator.subscriptions.status();
          if (json) printJson(view);
          else printAgent(view);
        }),
      ),
    );
}

function addWake(subscriptions: Command): void {
  subscriptions
    .command('wake')
    .description('Wake a worker for everything that is due, instead of waiting for the next sweep.')
    .addOption(requestedByOption())
    .addHelpText('after', helpWith('galaxy-notify subscriptions wake'))
    .action(
      action<Requested & GlobalOptions>(({ json, requestedBy }) =>
        withSession(['postgres', 'temporal'], async ({ operator }) => {
          const state = await operator.subscriptions.wake({ requestedBy });
          if (json) printJson(state);
          else printLine(`${countOf(state.workers, 'worker')} woken`);
        }),
      ),
    );
}

const isGivenUp = ({ status, action: next }: SubscriptionView): boolean =>
  status !== undefined && next === undefined;

function unknownOf(unknown: readonly string[]): ExitCode {
  if (unknown.length === 0) return EXIT.done;
  report(`no such connection: ${unknown.join(', ')}`);
  return EXIT.nothing;
}

function printViews(views: SubscriptionView[]): void {
  printTable(
    [
      'CONNECTION',
      'USER',
      'NOTIFICATIONS',
      'STATUS',
      'NEXT',
      'NOT BEFORE',
      'MESSAGING ROUTER',
      'NOTIFICATION ROUTER',
    ],
    views.map((view) => [
      view.connId,
      view.userId,
      view.wantsNotifications ? 'on' : 'off',
      view.status ?? 'no record',
      isGivenUp(view) ? 'given up' : view.isUnreadable ? 'unreadable' : view.action,
      view.actionAt,
      view.messagingRouter,
      view.notificationRouter,
    ]),
    { links: views.map(({ link }) => link) },
  );
}

function printAgent(view: AgentView): void {
  const { agentId, token, connections, givenUp, unreadable, tokenDeletions, live, link } = view;
  printFields([
    ['agent', agentId],
    ['token', token ? `${token.status}, ${token.mode}, on ${token.router}` : 'none'],
    ...Object.entries(connections).map(([status, count]) => [`${status} subscriptions`, count] as const),
    ['given up', givenUp],
    ['unreadable', unreadable],
    ['tokens to delete', tokenDeletions],
    ['commands that wait', live?.queue.length],
    ['commands done', live?.done],
    ['link', link],
  ]);
  if (!live) report('no answer from the supervisor: shown as the database has it');
  else if (live.isPaused) report('the agent keeps off the network');
}

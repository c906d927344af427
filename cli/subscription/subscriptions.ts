/** `subscriptions`: connections of the agent, and whether they are notified. */
import type { Command } from 'commander';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError } from '../command.ts';
import { define, list, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseCount, requestedByOption } from '../options.ts';
import { countOf, printView, report } from '../output.ts';
import type {
  AgentView,
  SubscriptionFilter,
  SubscriptionView,
} from '../../client/subscription/subscriptions.ts';
import { IDS_HELP, addUpkeepCommands } from './upkeep.ts';
import type { Session } from '../session.ts';

export function addTo(subscriptions: Command): void {
  define(subscriptions, {
    name: 'toggle',
    description: 'Turn notifications of connections on or off.',
    args: [['<connection id...>', 'which']],
    options: [
      option('--on', 'turn them on').conflicts('off'),
      ...[option('--off', 'turn them off'), requestedByOption()],
    ],
    examples: ['subscriptions toggle --off AbCdEfGhIjKlMnOp'],
    notes: [IDS_HELP],
    run: (
      { operator },
      { on, requestedBy }: { on?: boolean; off?: boolean } & Requested,
      connIds: string[],
    ) => operator.subscriptions.toggle(connIds, on === true, { requestedBy }),
    needs: ['postgres', 'temporal'],
    check({ on, off }) {
      if (!on && !off) throw new UsageError('give --on or --off');
    },
    print: ({ changed }, { on }) =>
      `notifications ${on ? 'on' : 'off'}: ${countOf(changed, 'connection')} changed`,
    end: ({ unknown }) => unknownOf(unknown),
  });

  define(subscriptions, {
    name: 'delete',
    description:
      'Delete connections and their subscriptions. There is no way back. The queues stay on their routers for the application.',
    args: [['<connection id...>', 'which']],
    options: [option('-y, --yes', 'it is meant'), requestedByOption()],
    examples: ['subscriptions delete --yes AbCdEfGhIjKlMnOp'],
    notes: [IDS_HELP],
    run: ({ operator }, { requestedBy }: { yes?: boolean } & Requested, connIds: string[]) =>
      operator.subscriptions.delete(connIds, { requestedBy }),
    needs: ['postgres', 'temporal'],
    check({ yes }) {
      if (!yes) throw new UsageError('what is deleted does not come back: add --yes');
    },
    print: ({ deleted }) => `${countOf(deleted, 'connection')} deleted`,
    end: ({ unknown }) => unknownOf(unknown),
  });

  list(subscriptions, {
    description: 'List connections with their subscriptions, newest change first.',
    filters: {
      userId: option('--user <n>', 'of one user', parseCount(0, 999_999_999)),
      status: option('--status <status>', 'how the subscription stands').choices([
        ...['new', 'key', 'created', 'off', 'deleted'],
      ]),
      isGivenUp: option('--given-up', 'only those that a worker gave up on'),
      isUnreadable: option('--unreadable', 'only those whose keys did not open'),
    },
    examples: ['subscriptions list', 'subscriptions list --given-up --json'],
    read:
      ({ operator }: Session) =>
      ({ limit, ...filter }: SubscriptionFilter & { limit: number }) =>
        operator.subscriptions.list(filter, limit),
    columns: {
      CONNECTION: 'connId',
      USER: 'userId',
      NOTIFICATIONS: ({ wantsNotifications }) => (wantsNotifications ? 'on' : 'off'),
      STATUS: ({ status }) => status ?? 'no record',
      NEXT: (view) => (isGivenUp(view) ? 'given up' : view.isUnreadable ? 'unreadable' : view.action),
      'NOT BEFORE': 'actionAt',
      'MESSAGING ROUTER': 'messagingRouter',
      'NOTIFICATION ROUTER': 'notificationRouter',
    },
  });

  define(subscriptions, {
    name: 'show',
    description: 'Show a connection with its subscription.',
    args: [['<connection id>', 'which']],
    examples: ['subscriptions show AbCdEfGhIjKlMnOp'],
    notes: [IDS_HELP],
    run: ({ operator }, _options: object, connId: string) => operator.subscriptions.show(connId),
    print(view) {
      printView(view);
      if (isGivenUp(view)) report('a worker gave up; start it over with: subscriptions retry');
      if (view.isUnreadable) report('its keys did not open; with them back: subscriptions retry');
    },
  });

  define(subscriptions, {
    name: 'status',
    description: 'Show how the agent stands: its token, its subscriptions, and what its supervisor does.',
    examples: ['subscriptions status'],
    run: ({ operator }) => operator.subscriptions.status(),
    print: printAgent,
  });

  define(subscriptions, {
    name: 'wake',
    description: 'Wake a worker for everything that is due, instead of waiting for the next sweep.',
    options: [requestedByOption()],
    examples: ['subscriptions wake'],
    run: ({ operator }, { requestedBy }: Requested) => operator.subscriptions.wake({ requestedBy }),
    needs: ['postgres', 'temporal'],
    print: ({ workers }) => `${countOf(workers, 'worker')} woken`,
  });

  addUpkeepCommands(subscriptions);
}

const isGivenUp = ({ status, action: next }: SubscriptionView): boolean =>
  status !== undefined && next === undefined;

function unknownOf(unknown: readonly string[]): ExitCode {
  if (unknown.length === 0) return EXIT.done;
  report(`no such connection: ${unknown.join(', ')}`);
  return EXIT.nothing;
}

function printAgent(view: AgentView): void {
  const { live, ...rows } = view;
  printView({ ...rows, commandsThatWait: live?.queue.length, commandsDone: live?.done });
  if (!live) report('no answer from the supervisor: shown as the database has it');
}

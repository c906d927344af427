/** `subscriptions`: connections of the agent, and whether they are notified. */
import type { Command } from 'commander';
import { ADDRESS_FORMS } from '../../api/subscription/router-address.ts';
import { jsonIn } from '../../api/text.ts';
import type { ExitCode } from '../command.ts';
import { EXIT, UsageError, action, readText } from '../command.ts';
import { define, form, list, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseCount, requestedByOption } from '../options.ts';
import { countOf, printJson, printLine, printView, report } from '../output.ts';
import type {
  AgentView,
  SubscriptionFilter,
  SubscriptionView,
} from '../../client/subscription/subscriptions.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';
import { readRouter } from './check.ts';

const IDS_HELP = 'An id that begins with a dash goes behind --, as in: subscriptions show -- -1xQ…';

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

  addUpkeepCommands(subscriptions);
}

/** What starts subscriptions over, pins routers, takes queues over and shows counters. */
function addUpkeepCommands(subscriptions: Command): void {
  define(subscriptions, {
    name: 'retry',
    description:
      'Start subscriptions over that were given up or could not be read. Fix the cause first: subscriptions list --given-up',
    args: [['[connection id...]', 'which; or --all']],
    options: [option('--all', 'all of them'), requestedByOption()],
    examples: ['subscriptions retry AbCdEfGhIjKlMnOp', 'subscriptions retry --all'],
    notes: [IDS_HELP],
    async run({ operator }, { all, requestedBy }: { all?: boolean } & Requested, connIds: string[]) {
      await operator.subscriptions.retry(all ? undefined : connIds, { requestedBy });
      return { retried: all ? 'all' : connIds };
    },
    needs: ['postgres', 'temporal'],
    check({ all }, [connIds]) {
      if (connIds.length > 0 === (all === true)) throw new UsageError('give connection ids, or --all');
    },
    print: () => 'what was given up or could not be read is started over',
  });

  form(subscriptions, {
    name: 'trust',
    description:
      'Pin a messaging or notification router, with all that is on it, to another fingerprint. The router is tried first under that.',
    args: [
      [
        '<address>',
        `the router: ${ADDRESS_FORMS.smp} or ntf://…; - for standard input, which must say it with a password`,
      ],
    ],
    options: [requestedByOption()],
    examples: [
      'subscriptions trust smp://<fingerprint>@smp.example.com',
      'subscriptions trust ntf://<fingerprint>@ntf.example.com',
      'subscriptions trust - <address.txt',
    ],
    notes: [
      'New tokens take the fingerprint of a notification router from NOTIFICATION_SUBSCRIPTION_NTF_SERVERS.',
    ],
  }).action(
    action<Requested, [string]>(async ({ json, requestedBy }, address) => {
      const router = await readRouter(address);
      await withSession(['postgres', 'temporal'], async ({ operator }) => {
        await operator.subscriptions.trust(router, { requestedBy });
        if (json) printJson({ router });
        else printLine(`${router.host}:${router.port} is trusted under this fingerprint`);
      });
    }),
  );

  define(subscriptions, {
    name: 'import',
    description:
      'Take over queues that an application has already: a JSON list of them, with their keys, from a file or standard input.',
    args: [['[file]', 'without it standard input, which leaves no keys on a disk']],
    options: [requestedByOption()],
    examples: ['subscriptions import queues.json'],
    notes: [
      'One queue: {"userId": 1, "server": "smp://<fingerprint>@smp.example.com", "recipientId": "…",',
      '"recipientPrivateKey": "…"}; optional are connId, enableNotifications,',
      'and notifier {notifierId, publicKey, privateKey, dhSecret}. The server is an address, or {host, port,',
      'keyHash}. Ids, keys, secrets and fingerprints are base64url.',
    ],
    run: async ({ operator }, { requestedBy }: Requested, file: string | undefined) => ({
      imported: await operator.subscriptions.import(await readList(file), { requestedBy }),
    }),
    needs: ['postgres', 'temporal'],
    print({ imported }) {
      for (const one of imported) if ('connId' in one) printLine(one.connId);
    },
    end({ imported }) {
      const errors = imported.flatMap((one) => ('error' in one ? [one.error] : []));
      for (const error of errors) report(`not imported: ${error}`);
      return errors.length > 0 ? EXIT.failed : EXIT.done;
    },
  });

  list(subscriptions, {
    name: 'statistics',
    description: "Show the counters of the agent's work, by user and router.",
    filters: { userId: option('--user <n>', 'of one user', parseCount(0, 999_999_999)) },
    examples: ['subscriptions statistics --user 1'],
    read:
      ({ operator }: Session) =>
      ({ limit, ...filter }: { userId?: number; limit: number }) =>
        operator.subscriptions.statistics(filter, limit),
    columns: { USER: 'userId', ROUTER: 'router', COUNTER: 'counter', VALUE: 'value', UPDATED: 'updatedAt' },
  });
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

/** @throws UsageError that quotes nothing of the file: it holds keys. */
async function readList(file = '-'): Promise<unknown[]> {
  const value = jsonIn(await readText(file, 'the file'));
  if (value === undefined) throw new UsageError('what is imported must be JSON');
  if (!Array.isArray(value) || value.length === 0)
    throw new UsageError('what is imported must be a list of queues');
  return value as unknown[];
}

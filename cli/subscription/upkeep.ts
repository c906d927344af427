/** `subscriptions`: what starts them over, pins routers, takes queues over and shows counters. */
import type { Command } from 'commander';
import { jsonIn } from '../../api/text.ts';
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import { ADDRESS_FORMS, AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { EXIT, UsageError, action, readSecret, readText } from '../command.ts';
import { define, form, list, option } from '../definition.ts';
import type { Requested } from '../options.ts';
import { parseCount, requestedByOption } from '../options.ts';
import { printJson, printLine, report } from '../output.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';

export const IDS_HELP = 'An id that begins with a dash goes behind --, as in: subscriptions show -- -1xQ…';

export function addUpkeepCommands(subscriptions: Command): void {
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

/** @throws UsageError that quotes nothing of the file: it holds keys. */
async function readList(file = '-'): Promise<unknown[]> {
  const value = jsonIn(await readText(file, 'the file'));
  if (value === undefined) throw new UsageError('what is imported must be JSON');
  if (!Array.isArray(value) || value.length === 0)
    throw new UsageError('what is imported must be a list of queues');
  return value as unknown[];
}

/** @throws UsageError for an invalid address, or an argument with a password. */
async function readRouter(argument: string): Promise<BinaryAddress> {
  try {
    return parseBinaryAddress(await readAddress(argument));
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

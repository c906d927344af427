/** What is known of a user: `why` says what the user got, and why not; `users forget` removes what is kept. */
import type { Command } from 'commander';
import { given } from '../api/given.ts';
import { NotFoundError, OperationFailedError } from '../client/errors.ts';
import type { Forgotten, ForgettingPreview, Subject } from '../client/forget.ts';
import type { WhyOptions } from '../client/why.ts';
import { EXIT, reportMore, requireYes } from './command.ts';
import { define, option } from './definition.ts';
import type { Requested } from './options.ts';
import {
  limitOption,
  parseCount,
  reasonOption,
  requestOf,
  requestedByOption,
  sinceOption,
  typeOption,
  yesOption,
} from './options.ts';
import { printHeading, printItems, report } from './output.ts';

type Asked = Pick<WhyOptions, 'type' | 'since'> & { limit: number };

export function addWhy(command: Command): void {
  define(command, {
    description:
      'Say in a sentence what became of each push, e-mail, mobile push and account callback for a user, newest first.',
    args: [['<user>', "a user's id, or the address of an administrator"]],
    options: [
      ...[typeOption(), limitOption()],
      sinceOption('accepted, refused or computed').default(undefined, '7d'),
    ],
    examples: ['why user-17', 'why user-17 --type game.turn.ready --since 2d --json'],
    run({ operator, config }, { type, since, limit }: Asked, recipient: string) {
      const retentionMs = config.values.NOTIFICATION_RECORD_RETENTION;
      return operator.why(recipient, { limit, retentionMs, ...given({ type, since }) });
    },
    print: ({ answers }) => printItems(answers, { AT: 'at', ID: 'id', WHY: 'sentence' }, 1),
    end({ answers, doubts, hasMore }, { limit }) {
      for (const doubt of doubts) report(doubt);
      reportMore(hasMore, limit);
      const isNothing = answers.every(({ cause }) => cause === 'never_seen' || cause === 'forgotten');
      return isNothing ? EXIT.nothing : EXIT.done;
    },
  });
}

interface ForgetOptions extends Requested {
  also?: string[];
  subscriptionUser?: number;
  dryRun?: boolean;
  yes?: boolean;
}

export function addUsers(users: Command): void {
  define(users, {
    name: 'forget',
    description:
      'Remove or blank what is kept of a user in PostgreSQL and Redis, and say what stays, where, and what ends it. Nothing is done while something of the user is under way. Keep producers from naming the user first. The same command again goes on after it was cut off.',
    args: [['<user>', "a user's id, or the address of an administrator"]],
    options: [
      option(
        '--also <value>',
        'an address or a name of the user that is blanked as well; may be repeated',
        (value, before: string[] = []) => [...before, value],
      ),
      option(
        '--subscription-user <n>',
        "the user's number within the agent of subscriptions: these are deleted, on their routers too",
        parseCount(0, 999_999_999),
      ),
      option('--dry-run', 'show what would be removed and what is in its way, and do nothing'),
      yesOption(),
      ...[requestedByOption(), reasonOption()],
    ],
    examples: [
      'users forget user-17 --dry-run',
      "users forget user-17 --also jane@example.com --yes --reason 'request 4711'",
    ],
    needs: ['postgres', 'redis'],
    run(
      { operator },
      options: ForgetOptions,
      userId: string,
    ): Promise<Partial<ForgettingPreview> & Forgotten> {
      const { also = [], subscriptionUser, dryRun } = options;
      const subject: Subject = { userId, also, ...given({ subscriptionUser }) };
      return dryRun ? operator.users.preview(subject) : operator.users.forget(subject, requestOf(options));
    },
    check(options, [userId]) {
      if (!options.dryRun) requireYes(`this would forget ${userId} for good`, options);
    },
    print({ removed, remains }) {
      if (removed.length > 0) {
        printHeading('Removed or blanked');
        printItems(removed, { WHERE: 'what', 'ROWS OR ENTRIES': 'count' });
      }
      printHeading('What stays');
      printItems(remains, { WHAT: 'what', ENDS: 'ends' });
    },
    end({ underWay = [], removed, userId }, { dryRun }) {
      if (underWay.length > 0) throw new OperationFailedError(underWay.join('\n'));
      if (dryRun) report('nothing was done');
      if (removed.length === 0) throw new NotFoundError(`nothing that can go is kept of ${userId}`);
    },
  });
}

/** `why`: what a user got, and why not. */
import type { Command } from 'commander';
import { given } from '../api/given.ts';
import type { WhyOptions } from '../client/why.ts';
import { EXIT, reportMore } from './command.ts';
import { define } from './definition.ts';
import { limitOption, sinceOption, typeOption } from './options.ts';
import { printItems, report } from './output.ts';

type Asked = Pick<WhyOptions, 'type' | 'since'> & { limit: number };

export function addTo(command: Command): void {
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
    print: ({ answers }) => printItems(answers, { AT: 'at', ID: 'id', WHY: 'sentence' }, { linked: 1 }),
    end({ answers, doubts, hasMore }, { limit }) {
      for (const doubt of doubts) report(doubt);
      reportMore(hasMore, limit);
      const isNothing = answers.every(({ cause }) => cause === 'never_seen' || cause === 'forgotten');
      return isNothing ? EXIT.nothing : EXIT.done;
    },
  });
}

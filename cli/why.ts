/** `why`: the question of support. */
import type { Command } from 'commander';
import type { WhyOptions } from '../client/why.ts';
import { EXIT, action, reportMore } from './command.ts';
import { printItems, shaped } from './definition.ts';
import { givenOf, rowsOf, screenOption, sinceOption, typeOption } from './options.ts';
import { printJson, report } from './output.ts';
import { withSession } from './session.ts';

export function addTo(command: Command): void {
  shaped(command, {
    description:
      'Say in a sentence what became of each push, e-mail, mobile push and account callback for a user, newest first.',
    args: [['<user>', "a user's id, or the address of an administrator"]],
    options: [
      ...[typeOption(), screenOption()],
      sinceOption('accepted, refused or computed').default(undefined, '7d'),
    ],
    examples: ['why user-17', 'why user-17 --type game.turn.ready --since 2d --json'],
  }).action(
    action<Pick<WhyOptions, 'type' | 'since'> & { limit?: number }, [string]>(
      ({ json, type, since, ...asked }, recipient) =>
        withSession(['postgres'], async ({ operator, config }) => {
          const limit = rowsOf({ json, ...asked });
          const retentionMs = config.values.NOTIFICATION_RECORD_RETENTION;
          const found = await operator.why(recipient, { limit, retentionMs, ...givenOf({ type, since }) });
          if (json) printJson(found);
          else printItems(found.answers, { AT: 'at', ID: 'id', WHY: 'sentence' }, { linked: 1 });
          for (const doubt of found.doubts) report(doubt);
          reportMore(found.hasMore, limit);
          const isNothing = found.answers.every(
            ({ cause }) => cause === 'never_seen' || cause === 'forgotten',
          );
          return isNothing ? EXIT.nothing : EXIT.done;
        }),
    ),
  );
}

/** `why`: the question of support. */
import type { Command } from 'commander';
import type { WhyOptions } from '../client/why.ts';
import { EXIT, action } from './command.ts';
import { shaped } from './definition.ts';
import { rowsOf, screenOption, sinceOption, typeOption } from './options.ts';
import { printJson, printTable, report } from './output.ts';
import { withSession } from './session.ts';

export function addTo(command: Command): void {
  shaped(command, {
    description:
      'Say in a sentence what became of each push, e-mail, mobile push and account callback for somebody, newest first.',
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
          const found = await operator.why(recipient, {
            limit,
            retentionMs: config.values.NOTIFICATION_RECORD_RETENTION,
            ...(type === undefined ? {} : { type }),
            ...(since === undefined ? {} : { since }),
          });
          if (json) printJson(found);
          else {
            printTable(
              ['AT', 'ID', 'WHY'],
              found.answers.map(({ at, id, sentence }) => [at, id, sentence]),
              { linked: 1, links: found.answers.map(({ link }) => link) },
            );
          }
          for (const doubt of found.doubts) report(doubt);
          if (found.hasMore)
            report(`the newest ${limit} are shown, there are more: narrow it down, or raise --limit`);
          const isNothing = found.answers.every(
            ({ cause }) => cause === 'never_seen' || cause === 'forgotten',
          );
          return isNothing ? EXIT.nothing : EXIT.done;
        }),
    ),
  );
}

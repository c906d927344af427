/** `actions`: who asked for what. */
import type { Command } from 'commander';
import { list, option } from './definition.ts';
import { spanOptions } from './options.ts';
import type { Session } from './session.ts';

export function addTo(actions: Command): void {
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

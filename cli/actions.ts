/** `actions`: who asked for what. */
import type { Command } from 'commander';
import type { ActionFilter } from '../client/actions.ts';
import { list, option } from './definition.ts';
import { givenOf, sinceOption, untilOption } from './options.ts';
import type { Session } from './session.ts';

interface ListOptions extends Omit<ActionFilter, 'requestedBy'> {
  by?: string;
  limit: number;
}

export function addTo(actions: Command): void {
  list(actions, {
    description:
      'List what operators asked for, newest first: pauses, replays, cancellations and all other changes, by whom and why.',
    options: [
      option('--action <command>', 'this command only, such as "mobile cancel"'),
      option('--target <text>', 'what it was done to'),
      option('--by <name>', 'who asked'),
      ...[sinceOption('asked'), untilOption('asked')],
    ],
    examples: ['actions list --since 7d', 'actions list --target game_lobby'],
    read({ operator }: Session, { by: requestedBy, action, target, since, until, limit }: ListOptions) {
      return operator.actions.list({ ...givenOf({ action, target, requestedBy, since, until }), limit });
    },
    columns: {
      'ASKED FOR': 'actedAt',
      BY: 'requestedBy',
      'DATABASE ROLE': 'dbUser',
      ACTION: 'action',
      TARGET: 'target',
      DETAIL: 'detail',
    },
    table: { flexible: 5 },
  });
}

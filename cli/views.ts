/** `views`: the Web UI's lists that operators need, as links. */
import type { Command } from 'commander';
import type { View } from '../client/resources.ts';
import { define, option } from './definition.ts';
import { printItems, report } from './output.ts';

export function addTo(command: Command): void {
  define<{ save?: boolean }, [], { items: View[] }>(command, {
    description:
      "Print links to the lists that operators need in Temporal's Web UI: dead letters, what is held, open operations, what waits, failures.",
    options: [
      option('--save', 'links that also save each list among the views of the browser; open each once'),
    ],
    examples: ['views', 'views --save --json'],
    // No server is asked.
    needs: [],
    run: async ({ operator }) => ({ items: operator.views() }),
    print({ items }, { save }) {
      printItems(
        items.map(({ link, saveLink, ...view }) => ({ ...view, link: save ? saveLink : link })),
        { VIEW: 'name', QUERY: 'query' },
      );
      if (items.some(({ link }) => link === undefined))
        report('there are no links: NOTIFICATION_TEMPORAL_UI_URL says where the Web UI is');
    },
  });
}

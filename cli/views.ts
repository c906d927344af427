/** `views`: the Web UI's lists that operators need, as links. */
import type { Command } from 'commander';
import { action, helpWith } from './command.ts';
import { printJson, printTable, report } from './output.ts';
import { withSession } from './session.ts';

export function addViewsCommand(program: Command): void {
  program
    .command('views')
    .summary("Links to lists in Temporal's Web UI, and to save them there")
    .description(
      "Print links to the lists that operators need in Temporal's Web UI: dead letters, what is held, open operations, what waits, failures.",
    )
    .option('--save', 'links that also save each list among the views of the browser; open each once')
    .addHelpText('after', helpWith('galaxy-notify views', 'galaxy-notify views --save --json'))
    .action(
      action<{ save?: boolean }>(({ json, save }) =>
        // No server is asked.
        withSession([], async ({ operator }) => {
          const items = operator.views();
          if (json) return printJson({ items });
          printTable(
            ['VIEW', 'QUERY'],
            items.map(({ name, query }) => [name, query]),
            { flexible: 1, links: items.map(({ link, saveLink }) => (save ? saveLink : link)) },
          );
          if (items.some(({ link }) => link === undefined))
            report('there are no links: NOTIFICATION_TEMPORAL_UI_URL says where the Web UI is');
        }),
      ),
    );
}

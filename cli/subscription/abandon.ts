/** `subscriptions abandon`: ends what cannot be deleted on its router, because its key is lost. */
import type { Command } from 'commander';
import { NotFoundError } from '../../client/errors.ts';
import type { Abandoned } from '../../client/subscription/abandon.ts';
import type { ExitCode, GlobalOptions } from '../command.ts';
import { EXIT, UsageError, action, helpWith } from '../command.ts';
import type { Requested } from '../options.ts';
import { requestedByOption } from '../options.ts';
import { countOf, printJson, printLine, report } from '../output.ts';
import type { Session } from '../session.ts';
import { withSession } from '../session.ts';

interface AbandonOptions extends GlobalOptions, Requested {
  dryRun?: boolean;
  yes?: boolean;
}

export function addAbandon(subscriptions: Command): void {
  subscriptions
    .command('abandon')
    .description(
      'Forget deleted connections and tokens whose keys are lost. No router is told. A key that is found again, and put back first, deletes them properly.',
    )
    .option('--dry-run', 'show how many there are, and forget none')
    .option('--yes', 'do not ask')
    .addOption(requestedByOption())
    .addHelpText(
      'after',
      helpWith('galaxy-notify subscriptions abandon --dry-run', 'galaxy-notify subscriptions abandon --yes'),
    )
    .action(
      action<AbandonOptions>((options) =>
        withSession(['postgres'], ({ operator }) => abandon(operator, options)),
      ),
    );
}

async function abandon(
  { subscriptions }: Session['operator'],
  { dryRun, yes, json, requestedBy }: AbandonOptions,
): Promise<ExitCode> {
  const found = await subscriptions.countUnreadableDeletions();
  if (dryRun) {
    if (json) printJson({ wouldAbandon: found });
    report(`${wordsOf(found)} would be forgotten; nothing was done`);
    return EXIT.done;
  }
  if (found.connections + found.tokens === 0) throw new NotFoundError('nothing waits for a key that is lost');
  if (!yes) throw new UsageError(`this forgets ${wordsOf(found)}: add --yes, or --dry-run to look`);
  const abandoned = await subscriptions.abandon({ requestedBy });
  if (json) printJson({ abandoned });
  else printLine(`${wordsOf(abandoned)} forgotten`);
  return EXIT.done;
}

const wordsOf = ({ connections, tokens }: Abandoned): string =>
  `${countOf(connections, 'deleted connection')} and ${countOf(tokens, 'deleted token')}`;

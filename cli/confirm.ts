/** The one question that the CLI asks. */
import { createInterface } from 'node:readline/promises';
import { UsageError } from './exit-codes.ts';

/**
 * Asks before a bulk replay, which reaches what its operator has not looked at.
 *
 * @throws UsageError where nobody can be asked.
 */
export async function isConfirmed(
  what: string,
  { yes, json }: { yes?: boolean; json?: boolean },
): Promise<boolean> {
  if (yes) return true;
  if (!process.stdin.isTTY || json) {
    throw new UsageError('a bulk replay asks first, which needs a terminal: add --yes, or --dry-run to look');
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    // Ctrl-C and Ctrl-D are a no.
    const answer = await terminal.question(`Replay ${what}? [y/N] `).catch(() => '\n');
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    terminal.close();
  }
}

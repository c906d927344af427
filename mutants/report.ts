/** What a run found out, as a page. Pure. */
import { availableParallelism, cpus } from 'node:os';
import type { Mutant } from './mutant.ts';
import { nameOf } from './mutant.ts';
import type { SuiteResult } from './suites.ts';

export interface Tried {
  mutant: Mutant;
  result: SuiteResult;
}

/** Share of mutants that must die. */
export const WANTED = 0.95;

export const isKilled = ({ result }: Tried): boolean => result.status !== 'passed';

export const shareOf = (tried: readonly Tried[]): number =>
  tried.length === 0 ? 1 : tried.filter(isKilled).length / tried.length;

export function markdownOf(tried: readonly Tried[]): string {
  const ms = tried.reduce((sum, { result }) => sum + result.ms, 0);
  const killed = tried.filter(isKilled);
  const survivors = tried.filter((one) => !isKilled(one));
  return `# Mutants

Printed by \`npm run test:mutants\` on ${new Date().toISOString().slice(0, 10)}, ${cpus()[0]?.model.trim() ?? 'unknown'}, ${availableParallelism()} cores, ${Math.round(ms / 60_000)} min without the runs that show
that each suite is green.

${killed.length} of ${tried.length} die, ${percent(shareOf(tried))}; at least ${percent(WANTED)} must.

${
  survivors.length === 0
    ? 'None survives.'
    : table(
        ['survivor', 'what the product does then', 'why no test has to notice'],
        survivors.map(({ mutant }) => [mutant.id, mutant.what, mutant.survives ?? '**a test is missing**']),
      )
}

${table(
  ['mutant', 'goes wrong', 'what the product does then', 'noticed by', 's'],
  killed.map(({ mutant, result }) => [
    mutant.id,
    mutant.wrong,
    mutant.what,
    result.status === 'timeout'
      ? `${nameOf(mutant.suite)}, which hangs`
      : `${mutant.suite.file}: ${result.failed ?? ''}`,
    (result.ms / 1_000).toFixed(1),
  ]),
)}
`;
}

const percent = (share: number): string => `${Math.floor(share * 1_000) / 10} %`;

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/** What a run of drills found out, as a page. */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { format } from 'prettier';
import { machineOf } from '../../faults/report.ts';
import type { DrillRecord } from './drill.ts';
import { ALARMS, inSeconds } from './pages.ts';

const PAGE = path.join(import.meta.dirname, '../../deploy/RUNBOOK-REPORT.md');
const WIDTH = 120;

/**
 * @param dir has a file for each alarm that was drilled.
 * @returns what to say about it. The page is only written when all were.
 */
export async function writeReport(dir: string): Promise<string> {
  const records = readdirSync(dir).map(
    (file) => JSON.parse(readFileSync(path.join(dir, file), 'utf8')) as DrillRecord,
  );
  const median = medianOf(records.map(({ trueAfter }) => trueAfter));
  const summary = `${records.length} of ${ALARMS.length} alarms; from the fault until one is true: median ${median.toFixed(1)} s`;
  const missing = ALARMS.filter(({ name }) => !records.some(({ alarm }) => alarm === name));
  if (missing.length > 0)
    return `${summary}. deploy/RUNBOOK-REPORT.md stays as it is, without ${missing.map(({ name }) => name).join(', ')}\n`;
  writeFileSync(PAGE, await format(pageOf(records, median), { parser: 'markdown', printWidth: WIDTH }));
  return `${summary}; written to deploy/RUNBOOK-REPORT.md\n`;
}

function pageOf(records: readonly DrillRecord[], median: number): string {
  const byName = new Map(records.map((record) => [record.alarm, record]));
  const all = ALARMS.map((alarm) => ({ ...alarm, ...byName.get(alarm.name)! }));
  const shortened = ALARMS.filter(({ expression }) => inSeconds(expression) !== expression);
  const longest = Math.max(...records.map(({ trueAfter }) => trueAfter));
  return `# The runbook, carried out

Written by \`npm run test:runbook\`; no figure is written by hand.

- When and where: ${new Date().toISOString().slice(0, 10)}, ${machineOf()}
- Alarms: ${ALARMS.length}, all of them brought about on a running service, and silent again after [their sections](RUNBOOK.md) were followed
- From the fault until the expression was true: median **${median.toFixed(1)} s**, longest ${longest.toFixed(1)} s
- Commands run as the sections have them: ${records.reduce((sum, { commands }) => sum + commands, 0)}

How: each expression is asked of a Prometheus that takes what the processes export every half second, on real PostgreSQL, Redis
and Temporal. Where it differs from production:

- The expression is measured, without the \`for\` of its alarm, which adds to the time until somebody is told.
- Windows of time are sixty times shorter, a minute is a second: \`[15m]\` is \`[15s]\`. That is so in ${shortened.length} of the alarms. Limits
  stay as they are.
- What nobody reports any more is forgotten after 5 s, which in production is the collector's \`metric_expiration\`.
- What is only true after a long time is made old: an entry comes with an id of ten minutes ago, a row is dated back.
- What a section asks of a person beside its commands stands in the last column, in the section's words.

| alarm | fault | true after | rings after | false after | commands | and besides |
| --- | --- | --- | --- | --- | --- | --- |
${all
  .map(
    ({ name, fault, trueAfter, falseAfter, commands, deeds, for: duration }) =>
      `| [${name}](RUNBOOK.md#${name.toLowerCase()}) | ${fault} | ${trueAfter.toFixed(1)} s | ${duration ? `+ ${duration}` : 'at once'} | ${falseAfter.toFixed(1)} s | ${commands} | ${deeds.map((words) => words.replaceAll('|', '\\|')).join('; ')} |`,
  )
  .join('\n')}
`;
}

function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : ((sorted[half - 1] ?? 0) + (sorted[half] ?? 0)) / 2;
}

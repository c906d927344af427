/** What a run of drills found out, as a page for the terminal. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { format } from 'prettier';
import { machineOf } from '../../faults/report.ts';
import type { DrillRecord } from './drill.ts';
import { ALARMS, inSeconds } from './pages.ts';

/** @param dir has a file for each alarm that was drilled; a drill that failed has no `trueAfter`. */
export async function reportOf(dir: string): Promise<string> {
  const found = readdirSync(dir).map(
    (file) => JSON.parse(readFileSync(path.join(dir, file), 'utf8')) as DrillRecord,
  );
  const succeeded = ALARMS.flatMap(({ name }) =>
    found.filter((record) => record.alarm === name && 'trueAfter' in record),
  );
  return format(pageOf(succeeded), { parser: 'markdown', printWidth: 120 });
}

function pageOf(records: readonly DrillRecord[]): string {
  const median = medianOf(records.map(({ trueAfter }) => trueAfter));
  const byName = new Map(records.map((record) => [record.alarm, record]));
  const all = ALARMS.flatMap((alarm) => {
    const record = byName.get(alarm.name);
    return record ? [{ ...alarm, ...record }] : [];
  });
  const missing = ALARMS.filter(({ name }) => !byName.has(name)).map(({ name }) => name);
  const shortened = ALARMS.filter(({ expression }) => inSeconds(expression) !== expression);
  const longest = Math.max(0, ...records.map(({ trueAfter }) => trueAfter));
  return `# The runbook, carried out

- When and where: ${new Date().toISOString().slice(0, 10)}, ${machineOf()}
- Alarms: ${records.length} of ${ALARMS.length} were brought about on a running service, and silent again after their sections of docs/operate/runbook.md were followed${missing.length > 0 ? `; not ${missing.join(', ')}` : ''}
- From the fault until the expression was true: median **${median.toFixed(1)} s**, longest ${longest.toFixed(1)} s
- Commands run as the sections have them: ${records.reduce((sum, { commands }) => sum + commands, 0)}

How: each expression is asked of a Prometheus that takes what the processes export every half second, on real PostgreSQL, Redis
and Temporal. Where it differs from production:

- The expression is measured, without the \`for\` of its alarm, which adds to the time until an operator is told.
- Windows of time are sixty times shorter, a minute is a second: \`[15m]\` is \`[15s]\`. That is so in ${shortened.length} of the alarms. Limits
  stay as they are.
- A series without reports is forgotten after 5 s, which in production is the collector's \`metric_expiration\`.
- What is only true after a long time is made old: an entry comes with an id of ten minutes ago, a row is dated back.
- What a section asks of a person beside its commands stands in the last column, in the section's words.

| alarm | fault | true after | rings after | false after | commands | and besides |
| --- | --- | --- | --- | --- | --- | --- |
${all
  .map(
    ({ name, fault, trueAfter, falseAfter, commands, deeds, for: duration }) =>
      `| ${name} | ${fault} | ${trueAfter.toFixed(1)} s | ${duration ? `+ ${duration}` : 'immediately'} | ${falseAfter.toFixed(1)} s | ${commands} | ${deeds.map((words) => words.replaceAll('|', '\\|')).join('; ')} |`,
  )
  .join('\n')}
`;
}

function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : ((sorted[half - 1] ?? 0) + (sorted[half] ?? 0)) / 2;
}

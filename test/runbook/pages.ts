/** The alarms of deploy/alerts/ and the sections of docs/operate/runbook.md, as drills read them. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';

const DEPLOY = path.join(import.meta.dirname, '../../deploy');

/** As Prometheus reads it. */
export interface Alarm {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; runbook: string };
}

export const ALARMS: readonly Alarm[] = readdirSync(path.join(DEPLOY, 'alerts'))
  .filter((file) => file.endsWith('.yaml'))
  .flatMap((file) => {
    const text = readFileSync(path.join(DEPLOY, 'alerts', file), 'utf8');
    const { groups } = parse(text) as { groups: { rules: Alarm[] }[] };
    return groups.flatMap(({ rules }) => rules);
  });

export interface Section {
  /** Its words, on one line. */
  text: string;
  /** Lines of its shell, in their order. */
  commands: readonly string[];
}

export const SECTIONS: ReadonlyMap<string, Section> = new Map(
  readFileSync(path.join(DEPLOY, '../docs/operate/runbook.md'), 'utf8')
    .split(/^### /m)
    .slice(1)
    .map((text): [string, Section] => [
      text.slice(0, text.indexOf('\n')),
      {
        text: text.replaceAll(/\s+/g, ' '),
        commands: [...text.matchAll(/^```sh\n([^]*?)^```$/gm)].flatMap(([, lines]) =>
          lines!.trim().split('\n'),
        ),
      },
    ]),
);

/** @throws Error for an alarm without a section. */
export function sectionOf(alarm: string): Section {
  const section = SECTIONS.get(alarm);
  if (!section) throw new Error(`docs/operate/runbook.md has no section ${alarm}`);
  return section;
}

/**
 * An expression whose windows of time have become shorter: a minute is a second. Otherwise the drill would wait for a quarter
 * of an hour until an alarm about what was counted in that time is silent again. Limits stay as they are.
 */
export function inSeconds(expression: string): string {
  return expression.replaceAll(
    /(\[|offset |:)(\d+)([mh])/g,
    (_, before: string, count: string, unit: string) => {
      const seconds = Number(count) * (unit === 'h' ? 60 : 1);
      return `${before}${seconds}s`;
    },
  );
}

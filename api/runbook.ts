/** Links to sections of the runbook. The operator of the service configures its address. */

/** Headings of docs/operate/runbook.md, as links name them. */
export const RUNBOOK_SECTIONS = { deadLetter: 'notificationdeadletters' } as const;

/** A link as a field, or no field without a configured address of the runbook. */
export function runbookField(
  runbookUrl: string | undefined,
  section: keyof typeof RUNBOOK_SECTIONS,
): { runbook?: string } {
  return runbookUrl === undefined
    ? {}
    : { runbook: `${runbookUrl.replace(/#.*$/, '')}#${RUNBOOK_SECTIONS[section]}` };
}

/** Where the runbook says what to do. Its address is known to whoever runs the service. */

/** Headings of docs/operate/runbook.md, as links name them. */
export const RUNBOOK_SECTIONS = { deadLetter: 'notificationdeadletters' } as const;

/** A link as a field, or no field when nobody has said where the runbook is. */
export function runbookField(
  runbookUrl: string | undefined,
  section: keyof typeof RUNBOOK_SECTIONS,
): { runbook?: string } {
  return runbookUrl === undefined
    ? {}
    : { runbook: `${runbookUrl.replace(/#.*$/, '')}#${RUNBOOK_SECTIONS[section]}` };
}

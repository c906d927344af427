/** Details of workflows, which the Web UI shows as Markdown. They hold ids, never an address. Pure. */

/** The Web UI shows them whole, above everything else. */
export const MAX_DETAILS_BYTES = 400;
const MAX_TEXT = 120;
/** Longest reason and name of an operator, characters. */
const MAX_GIVEN_TEXT = 500;

/** @returns paragraphs of at most 400 bytes together; one that does not fit is left out, so that no link is cut. */
export function detailsOf(...paragraphs: (string | false | undefined)[]): string {
  let details = '';
  for (const paragraph of paragraphs) {
    if (!paragraph) continue;
    const longer = details === '' ? paragraph : `${details}\n\n${paragraph}`;
    if (new TextEncoder().encode(longer).length <= MAX_DETAILS_BYTES) details = longer;
  }
  return details;
}

/** Text from an operator or a server as one short line without what may be an address. */
export const shortText = (text: string, max = MAX_TEXT): string => {
  const line = text
    .replaceAll(/\S*@\S*/g, '…')
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length <= max ? line : `${line.slice(0, max - 1).toWellFormed()}…`;
};

/** ` by nina`, or nothing. */
export const byWhom = (requestedBy: string | undefined): string =>
  requestedBy === undefined ? '' : ` by ${shortText(requestedBy, 40)}`;

/** @returns which of these fields is given and is not a text that can be stored; undefined when none is. */
export function problemOfTexts(request: object, ...fields: string[]): string | undefined {
  const isText = (value: unknown) =>
    // NUL cannot be stored.
    typeof value === 'string' && value.length <= MAX_GIVEN_TEXT && !value.includes('\0');
  const refused = fields.find((field) => {
    const value = (request as Record<string, unknown>)[field];
    return value !== undefined && !isText(value);
  });
  return refused === undefined
    ? undefined
    : `${refused} must be a text of at most ${MAX_GIVEN_TEXT} characters`;
}

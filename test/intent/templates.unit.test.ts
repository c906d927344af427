/** The mail templates are complete and use only what a payload has. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { SUPPORTED_LOCALES } from '../../api/intent/user-service.ts';
import { NOTIFICATION_TYPES, fieldsOf, schemaOf, samplePayload } from './galaxy.ts';

const TEMPLATES = path.join(import.meta.dirname, '../../templates');
const EXPECTED = NOTIFICATION_TYPES.flatMap((type) =>
  SUPPORTED_LOCALES.flatMap((locale) =>
    ['subject.tmpl', 'text.tmpl'].map((asset) => ({ type, asset, file: path.join(type, locale, asset) })),
  ),
);

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();

it('I19 there is a subject and a text for every type and locale, and nothing else', () => {
  expect(filesBelow(TEMPLATES)).toEqual(EXPECTED.map(({ file }) => file).sort());
});

describe.each(EXPECTED)('I19 template $file', ({ type, asset, file }) => {
  const isSubject = asset === 'subject.tmpl';
  const template = readFileSync(path.join(TEMPLATES, file), 'utf8');
  /** Everything between braces, so that an action other than a plain variable shows as an unknown one. */
  const actions = [...template.matchAll(/\{\{(.*?)\}\}/gs)].map(([, action = '']) => action);

  it('a subject is one line with something on it, a text is about this case and ends with a new line', () => {
    expect(template).toMatch(isSubject ? /^\S.*\S\n$/ : /\S\n$/);
    if (!isSubject) expect(actions).not.toEqual([]);
  });

  it('uses payload fields only, and shows no raw timestamp', () => {
    // Go prints a number from JSON as 1.7e+12 when it is large, and readers have no use for milliseconds.
    const fields = fieldsOf(type).filter((field) => !field.endsWith('_ms'));
    expect(fields.map((field) => `.${field}`)).toEqual(expect.arrayContaining(actions));
    expect(template.replaceAll(/\{\{.*?\}\}/gs, '')).not.toMatch(/[{}]/);
  });

  it('security-14 no variable can break out of it', () => {
    const hostile = isSubject ? ['\r\nBcc: eve@example.com', '\n', '\u2028'] : [];
    for (const field of actions.map((action) => action.slice(1)))
      for (const characters of [...hostile, '\0', '\u0007', '\u001b[2J', '\u0085', '\u202e', '\u2066']) {
        const { error } = schemaOf(type).safeParse({ ...samplePayload(type), [field]: `Eve${characters}` });
        const refused = error?.issues.map(({ path: [name] }) => name);
        expect({ field, characters, refused }).toEqual({ field, characters, refused: [field] });
      }
  });
});

it('I42 no template and no type is about signing in', () => {
  expect(NOTIFICATION_TYPES).not.toContain('auth.login_code');
  expect(filesBelow(TEMPLATES).filter((file) => /auth|login/.test(file))).toEqual([]);
});

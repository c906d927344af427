/** The mail templates are complete and use only what a payload has. */
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { NotificationType } from '../../api/intent/catalog.ts';
import { SUPPORTED_LOCALES } from '../../api/intent/user-service.ts';
import { NOTIFICATION_TYPES, fieldsOf, schemaOf, samplePayload } from './galaxy.ts';

const TEMPLATES = path.join(import.meta.dirname, '../../templates');
const ASSETS = ['subject.tmpl', 'text.tmpl'];

const read = (type: NotificationType, locale: string, asset: string): string =>
  readFileSync(path.join(TEMPLATES, type, locale, asset), 'utf8');

/** Everything between braces, so that an action other than a plain variable shows as an unknown one. */
const actionsOf = (template: string): string[] =>
  [...template.matchAll(/\{\{(.*?)\}\}/gs)].map(([, action = '']) => action);

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();

it('I19 there is a subject and a text for every type and locale, and nothing else', () => {
  const expected = NOTIFICATION_TYPES.flatMap((type) =>
    SUPPORTED_LOCALES.flatMap((locale) => ASSETS.map((asset) => path.join(type, locale, asset))),
  );
  expect(filesBelow(TEMPLATES)).toEqual(expected.sort());
});

describe.each(NOTIFICATION_TYPES)('I19 templates of %s', (type) => {
  const knownActions = fieldsOf(type).map((field) => `.${field}`);

  it.each(SUPPORTED_LOCALES)('subject is one line with something on it (%s)', (locale) => {
    expect(read(type, locale, 'subject.tmpl')).toMatch(/^\S.*\S\n$/);
  });

  it.each(SUPPORTED_LOCALES)('text is about this case and ends with a new line (%s)', (locale) => {
    const text = read(type, locale, 'text.tmpl');
    expect(actionsOf(text)).not.toEqual([]);
    expect(text).toMatch(/\S\n$/);
  });

  it.each(ASSETS)('%s uses payload fields only', (asset) => {
    for (const locale of SUPPORTED_LOCALES) {
      const template = read(type, locale, asset);
      expect(knownActions).toEqual(expect.arrayContaining(actionsOf(template)));
      expect(template.replaceAll(/\{\{.*?\}\}/gs, '')).not.toMatch(/[{}]/);
    }
  });

  it.each(ASSETS)('security-14 no variable of %s can break out of it', (asset) => {
    const hostile = asset === 'subject.tmpl' ? ['\r\nBcc: eve@example.com', '\n', '\u2028'] : [];
    for (const locale of SUPPORTED_LOCALES) {
      for (const action of actionsOf(read(type, locale, asset))) {
        const field = action.slice(1);
        for (const characters of [...hostile, '\0', '\u0007', '\u001b[2J', '\u0085', '\u202e', '\u2066']) {
          const result = schemaOf(type).safeParse({
            ...samplePayload(type),
            [field]: `Eve${characters}`,
          });
          expect({
            field,
            characters,
            refused: result.error?.issues.map(({ path: [name] }) => name),
          }).toEqual({
            field,
            characters,
            refused: [field],
          });
        }
      }
    }
  });

  // Go prints a number from JSON as 1.7e+12 when it is large, and readers have no use for milliseconds.
  it.each(ASSETS)('%s shows no raw timestamp', (asset) => {
    for (const locale of SUPPORTED_LOCALES) {
      expect(actionsOf(read(type, locale, asset)).filter((action) => action.endsWith('_ms'))).toEqual([]);
    }
  });
});

it('I42 no template and no type is about signing in', () => {
  expect(NOTIFICATION_TYPES).not.toContain('auth.login_code');
  expect(filesBelow(TEMPLATES).filter((file) => /auth|login/.test(file))).toEqual([]);
});

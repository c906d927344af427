/** The file of targets: what it must hold, and what is said when it does not. */
import path from 'node:path';
import { loadConfig } from '../../config/load.ts';
import { PRODUCTION, problemsIn } from '../platform/config-problems.ts';
import { scratchFolder } from '../scratch.ts';

const TARGET = {
  name: 'eu-collector',
  kind: 'price_collector',
  geo: 'eu',
  url: 'http://collector.internal/symbols',
};
const OTHER = { name: 'eu-alert-1', kind: 'price_alert', geo: 'eu', url: 'http://alert.internal/symbols' };

const targetWith = (changes: object) => ({ ...TARGET, ...changes });

const scratch = scratchFolder('targets');
const fileWith = (content: unknown): string =>
  scratch.write('targets.json', typeof content === 'string' ? content : JSON.stringify(content));

const load = (file: string) => loadConfig({ NOTIFICATION_SYMBOL_TARGETS_FILE: file });
const problemsOf = (file: string): readonly string[] => problemsIn(() => load(file));

test('S1 a file of targets is taken as it is', () => {
  const { values } = load(fileWith([TARGET, OTHER]));
  expect(values.NOTIFICATION_SYMBOL_TARGETS_FILE).toEqual([TARGET, OTHER]);
});

test.each<[string, unknown, string]>([
  ['no JSON', '[', 'JSON'],
  ['no list', {}, 'expected array'],
  ['an empty list', [], 'at least one target'],
  [
    'an unknown kind',
    [targetWith({ kind: 'x' })],
    'entry 1 kind must be one of price_collector, price_alert',
  ],
  [
    'an invalid URL',
    [OTHER, targetWith({ url: 'alert.internal' })],
    'entry 2 url must be an http or https URL',
  ],
  ['a password in a URL', [targetWith({ url: 'http://a:b@c.internal' })], 'must not hold a user or password'],
  ['a name used twice', [OTHER, targetWith({ name: OTHER.name })], 'entry 2 name eu-alert-1 is used twice'],
  ['a URL used twice', [OTHER, targetWith({ url: OTHER.url })], 'is used twice'],
  ['a misspelt field', [targetWith({ region: 'eu' })], 'region'],
])('S1 a file with %s is refused with its name and place', (_what, content, problem) => {
  const file = fileWith(content);
  const problems = problemsOf(file);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatch(/^NOTIFICATION_SYMBOL_TARGETS_FILE /);
  expect(problems[0]).toContain(problem);
  expect(problems[0]).not.toContain('a:b');
});

test('S1 every problem is reported, before anything is started', () => {
  const file = fileWith([
    { ...TARGET, kind: 'x' },
    { ...OTHER, geo: 'EU West' },
  ]);
  expect(problemsOf(file)).toEqual([expect.stringMatching(/entry 1 kind .*; entry 2 geo /)]);
  expect(problemsOf(path.join(scratch.dir, 'missing.json'))[0]).toContain('ENOENT');
});

test('S1 in production the role does not start without a file', () => {
  expect(loadConfig(PRODUCTION).roles).toEqual(['intent']);
  const both = { ...PRODUCTION, NOTIFICATION_ROLES: 'intent,symbol-config' };
  expect(() => loadConfig(both)).toThrow(/NOTIFICATION_SYMBOL_TARGETS_FILE is required in production/);
});

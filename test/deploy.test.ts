/** What `deploy/` and the compose file say of Temporal, held against what the embedded server runs with. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { DYNAMIC_CONFIG } from '../dev/temporal.ts';

const ROOT = path.dirname(import.meta.dirname);
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');

const dynamicConfig = (profile: string) =>
  Object.fromEntries(
    Object.entries(
      parse(read(`deploy/temporal/${profile}.yaml`)) as Record<string, { value: unknown }[]>,
    ).map(([key, [first, ...constrained]]) => {
      expect([key, constrained]).toEqual([key, []]);
      return [key, first?.value];
    }),
  );

test('I40 the small profile is what the embedded server runs with', () => {
  expect(dynamicConfig('small')).toEqual(DYNAMIC_CONFIG);
});

test('I40 the large profile sets nothing that the small one does not know', () => {
  const unknown = Object.keys(dynamicConfig('large')).filter((key) => !(key in DYNAMIC_CONFIG));
  expect(unknown).toEqual([]);
});

test("I40 the compose file's server runs with the small profile", () => {
  const { services } = parse(read('docker-compose.yml')) as {
    services: { temporal: { command: string[] } };
  };
  const flag = '--dynamic-config-value=';
  const settings = services.temporal.command
    .filter((argument) => argument.startsWith(flag))
    .map((argument) => argument.slice(flag.length).split('=') as [string, string]);
  expect(Object.fromEntries(settings.map(([key, value]) => [key, JSON.parse(value) as unknown]))).toEqual(
    DYNAMIC_CONFIG,
  );
});

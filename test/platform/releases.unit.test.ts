/** Every file says the same version. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { versionPlaces, withVersion } from '../../dev/release.ts';

const ROOT = path.join(import.meta.dirname, '../..');
const read = (...file: string[]) => readFileSync(path.join(ROOT, ...file), 'utf8');
const { version } = JSON.parse(read('package.json')) as { version: string };

test('chart, image, clients and contracts have the version of package.json, and a release changes all of them', () => {
  const places = versionPlaces(ROOT);
  for (const { file, before } of places) {
    const text = read(file);
    expect([file, withVersion(text, before, version)]).toEqual([file, text]);
    const next = withVersion(text, before, '7.8.9-rc.1');
    expect([file, next === text, next.includes('7.8.9-rc.1')]).toEqual([file, false, true]);
    expect(withVersion(next, before, version)).toBe(text);
  }
  expect(places.map(({ file }) => file)).toEqual(
    expect.arrayContaining(['api/intent/intents-asyncapi.yaml', 'api/probe-openapi.yaml']),
  );
  const lock = JSON.parse(read('package-lock.json')) as {
    version: string;
    packages: { '': { version: string } };
  };
  expect([lock.version, lock.packages[''].version]).toEqual([version, version]);
});

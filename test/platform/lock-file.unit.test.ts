/** What npm installs is known byte by byte. */
import { readFileSync } from 'node:fs';
import checksums from '../../dev/node-checksums.json' with { type: 'json' };

interface LockedPackage {
  version?: string;
  integrity?: string;
  link?: boolean;
  optionalDependencies?: Record<string, string>;
}

const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
  packages: Record<string, LockedPackage>;
};

test('security-21 every package of the lock file has an integrity hash', () => {
  const without = Object.entries(packages).flatMap(([folder, { integrity, link }]) =>
    folder === '' || link || /^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity ?? '') ? [] : [folder],
  );
  expect(without).toEqual([]);
  expect(Object.keys(packages).length).toBeGreaterThan(500);
});

test('security-21 the lock file has the optional packages of every platform', () => {
  const missing = Object.entries(packages).flatMap(([folder, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter((name) => {
      // As Node looks for it: in the package's own folder, and in those around it.
      const places = folder.split('/node_modules/').map((_, depth, parts) => parts.slice(0, depth + 1));
      const prefixes = ['', ...places.map((parts) => `${parts.join('/node_modules/')}/`)];
      return !prefixes.some((prefix) => `${prefix}node_modules/${name}` in packages);
    }),
  );
  expect([...new Set(missing)]).toEqual([]);
});

test('security-21 of the Node that the package of that name fetches, the checksums are known', () => {
  const version = packages['node_modules/node']?.version ?? '';
  expect(checksums).toMatchObject({
    [version]: {
      'linux-x64': expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      'linux-arm64': expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    },
  });
});

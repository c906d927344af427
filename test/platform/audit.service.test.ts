/** The check for known vulnerabilities, by npm itself against a registry that knows, does not, or knows of something bad. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { scratchFolder } from '../scratch.ts';

const DAY_MS = 86_400_000;
const { dir: folder } = scratchFolder('audit');
const snapshot = path.join(folder, 'advisories.json');

interface Snapshot {
  takenAt: string;
  audited: string[];
  vulnerabilities: object[];
}

/** What the registry answers to questions about vulnerabilities; undefined: that it does not know any. */
let advisories: object | undefined;
const registry = createServer((request, response) => {
  request.resume();
  request.once('end', () => {
    const status = advisories && request.url?.includes('/advisories/bulk') ? 200 : 405;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(advisories ?? {}));
  });
});

beforeAll(async () => {
  registry.listen(0, '127.0.0.1');
  await once(registry, 'listening');
});
afterAll(() => void registry.close());

async function audit(...args: string[]): Promise<{ code: number | null; text: string }> {
  const { port } = registry.address() as AddressInfo;
  const child = spawn(process.execPath, ['dev/audit.mjs', '--snapshot', snapshot, ...args], {
    env: {
      PATH: process.env['PATH'],
      HOME: folder,
      npm_config_registry: `http://127.0.0.1:${port}/`,
      npm_config_fetch_retries: '0',
    },
  });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, text };
}

const change = (how: (known: Snapshot) => object) =>
  writeFileSync(snapshot, JSON.stringify(how(JSON.parse(readFileSync(snapshot, 'utf8')) as Snapshot)));

test('security-21 without any knowledge a change may land, and a release may not', async () => {
  const landing = await audit();
  expect([landing.code, landing.text]).toEqual([0, expect.stringContaining('Warning, not known')]);
  expect((await audit('--release')).code).toBe(1);
  expect((await audit('--write')).code).toBe(1);
});

test('security-21 an answer of the registry counts for 7 days, and for the versions that it was about', async () => {
  advisories = {};
  const written = await audit('--write', '--release');
  expect([written.code, written.text]).toEqual([0, expect.stringContaining('by the registry')]);
  advisories = undefined;
  const offline = await audit('--release');
  expect([offline.code, offline.text]).toEqual([0, expect.stringContaining('by the snapshot of')]);

  const { audited, takenAt } = JSON.parse(readFileSync(snapshot, 'utf8')) as Snapshot;
  expect(audited).toContainEqual(expect.stringMatching(/^jose@\d/));
  change((known) => ({ ...known, audited: audited.filter((name) => !name.startsWith('jose@')) }));
  expect(await audit('--release')).toEqual({
    code: 1,
    text: expect.stringMatching(/Not known: the snapshot says nothing of jose@\d/) as string,
  });
  const old = new Date(Date.parse(takenAt) - 8 * DAY_MS).toISOString();
  change((known) => ({ ...known, audited, takenAt: old }));
  expect((await audit('--release')).code).toBe(1);
  const landing = await audit();
  expect([landing.code, landing.text]).toEqual([0, expect.stringContaining('8 days old')]);
});

test('security-21 what is known to be bad is red everywhere, online and by the snapshot', async () => {
  advisories = {
    jose: [
      {
        ...{ id: 1, title: 'test', url: 'https://example.com/1', severity: 'critical', cwe: [] },
        ...{ vulnerable_versions: '<999.0.0', cvss: { score: 9, vectorString: null } },
      },
    ],
  };
  const online = await audit('--write');
  expect([online.code, online.text]).toEqual([1, expect.stringMatching(/critical: jose/)]);
  advisories = undefined;
  expect((await audit()).code).toBe(1);
});

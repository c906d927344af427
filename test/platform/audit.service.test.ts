/** The check for known vulnerabilities, by npm itself against a registry that knows, does not, or knows of something bad. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { listen } from '../../dev/servers/ports.ts';
import { scratchFolder } from '../scratch.ts';

const DAY_MS = 86_400_000;
const { dir: folder } = scratchFolder('audit');
const snapshot = path.join(folder, 'advisories.json');

/** What the registry answers to questions about vulnerabilities; undefined: that it does not know any. */
let advisories: object | undefined;
const registry = createServer((request, response) => {
  request.resume();
  request.once('end', () => {
    const status = advisories && request.url?.includes('/advisories/bulk') ? 200 : 405;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(advisories ?? {}));
  });
});

let port: number;
beforeAll(async () => {
  port = await listen(registry);
});
afterAll(() => void registry.close());

/** @returns its exit code and what it says. */
async function audit(...args: string[]): Promise<[code: number | null, output: string]> {
  const { PATH } = process.env;
  const npm = { npm_config_registry: `http://127.0.0.1:${port}/`, npm_config_fetch_retries: '0' };
  const child = spawn(process.execPath, ['dev/audit.mjs', '--snapshot', snapshot, ...args], {
    env: { PATH, HOME: folder, ...npm },
  });
  const [out, errors] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return [child.exitCode, out + errors];
}

const saying = (words: string | RegExp) => expect.stringMatching(words) as string;

test('security-21 without any knowledge a change may land, and a release may not', async () => {
  expect(await audit()).toEqual([0, saying('Warning, not known')]);
  expect((await audit('--release'))[0]).toBe(1);
  expect((await audit('--write'))[0]).toBe(1);
});

test('security-21 an answer of the registry counts for 7 days, and for the versions that it was about', async () => {
  advisories = {};
  expect(await audit('--write', '--release')).toEqual([0, saying('by the registry')]);
  advisories = undefined;
  const known = JSON.parse(readFileSync(snapshot, 'utf8')) as { takenAt: string; audited: string[] };
  const daysAgo = (days: number) => new Date(Date.parse(known.takenAt) - days * DAY_MS).toISOString();
  const withoutJose = known.audited.filter((name) => !name.startsWith('jose@'));
  for (const [changes, release] of [
    [{}, [0, saying('by the snapshot of')]],
    [{ audited: withoutJose }, [1, saying(/Not known: the snapshot says nothing of jose@\d/)]],
    [{ takenAt: daysAgo(8) }, [1, saying('8 days old')]],
  ] as const) {
    writeFileSync(snapshot, JSON.stringify({ ...known, ...changes }));
    expect(await audit('--release')).toEqual(release);
  }
  expect(await audit()).toEqual([0, saying('8 days old')]);
});

test('security-21 what is known to be bad is red everywhere, online and by the snapshot', async () => {
  const bad = { id: 1, title: 'test', url: 'https://example.com/1', severity: 'critical', cwe: [] };
  advisories = {
    jose: [{ ...bad, vulnerable_versions: '<999.0.0', cvss: { score: 9, vectorString: null } }],
  };
  expect(await audit('--write')).toEqual([1, saying(/critical: jose/)]);
  advisories = undefined;
  expect((await audit())[0]).toBe(1);
});

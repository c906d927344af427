/** Where the program of the embedded Temporal comes from when nothing can be downloaded, with a stand-in for Go. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { eventually } from '../eventually.ts';

/** Notes the module file of each build, and waits for a file before it ends one. */
const GO = `#!/bin/sh
[ "$1" = version ] && exit 0
modules=go.mod
server=1.29.1
while [ "$1" != -o ]; do
  [ "$1" = -modfile=1.32.mod ] && modules=1.32.mod && server=1.32.2
  shift
done
echo "$modules" >> "$CALLS"
[ "$modules" = "$GO_FAILS_AT" ] && echo "no $modules today" && exit 1
while [ ! -e "$MAY_END" ]; do /bin/sleep 0.05; done
printf '#!/bin/sh\\necho "temporal-server (Server %s, UI 2.0.0)"\\n' "$server" > "$2"
/bin/chmod +x "$2"
`;
/** What the machine has is too old. */
const TEMPORAL = "#!/bin/sh\necho 'temporal version 0.10.0 (Server 1.20.0, UI 2.9.0)'\n";

let dir: string;
let env: Record<string, string>;
const inDir = (...name: string[]) => path.join(dir, ...name);
const builds = () =>
  existsSync(inDir('calls')) ? readFileSync(inDir('calls'), 'utf8').trim().split('\n') : [];

function addProgram(name: string, script: string): void {
  mkdirSync(inDir('bin'), { recursive: true });
  writeFileSync(inDir('bin', name), script);
  chmodSync(inDir('bin', name), 0o755);
}

beforeEach(() => {
  dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-program-'));
  addProgram('temporal', TEMPORAL);
  addProgram('go', GO);
  env = {
    PATH: inDir('bin'),
    CALLS: inDir('calls'),
    MAY_END: inDir('may-end'),
    // Nobody listens there, so that nothing is downloaded.
    NODE_USE_ENV_PROXY: '1',
    HTTPS_PROXY: 'http://127.0.0.1:9',
  };
});
// What a process that was killed had begun may still be ending.
afterEach(() => rmSync(dir, { recursive: true, maxRetries: 5 }));

function begin(...args: string[]) {
  const program = path.resolve('dev/servers/temporal-program.mjs');
  const child = spawn(process.execPath, [program, '--cache', inDir('cache'), ...args], {
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const answer = Promise.all([text(child.stdout), once(child, 'close')]);
  return {
    kill: () => child.kill('SIGKILL'),
    found: async () => JSON.parse((await answer)[0]) as Record<string, unknown>,
  };
}
const untilBuilding = (count: number) =>
  eventually('the build to begin', async () => builds().length === count);
const letBuildsEnd = () => writeFileSync(inDir('may-end'), '');
const built = (engine: string, server: string) => ({
  command: expect.stringMatching(`/cache/temporal-server-${engine}-[0-9a-f]{12}$`) as string,
  server,
  isCli: false,
});
const DEFAULT = built('1.29', '1.29.1');

test('I97 processes that look for it at once have it built once, and later ones find it without Go', async () => {
  const processes = [begin(), begin(), begin()];
  await untilBuilding(1);
  letBuildsEnd();
  for (const one of processes) expect(await one.found()).toEqual(DEFAULT);
  expect(builds()).toEqual(['go.mod']);
  rmSync(inDir('bin', 'go'));
  expect(await begin().found()).toEqual(DEFAULT);
});

test('I97 a process that was killed while it built holds nobody up', async () => {
  const first = begin();
  await untilBuilding(1);
  first.kill();
  const second = begin();
  await untilBuilding(2);
  letBuildsEnd();
  expect(await second.found()).toEqual(DEFAULT);
});

test('I97 what cannot be built is tried with the other engine, unless one is asked for', async () => {
  letBuildsEnd();
  env = { ...env, GO_FAILS_AT: 'go.mod' };
  const { problem } = await begin('--engine', '1.29').found();
  expect(problem).toMatch(/1\.20\.0, needed is 1\.29[^]*download: [^]*build: go failed[^]*no go\.mod today/);
  expect(await begin().found()).toEqual(built('1.32', '1.32.2'));
});

test('I97 without Go it is said what was tried, and what to do', async () => {
  rmSync(inDir('bin', 'go'));
  const { problem } = await begin().found();
  expect(problem).toMatch(/Temporal 1\.29: build: go: not found[^]*Temporal 1\.32: build: go: not found/);
  expect(problem).toMatch(/Install the Temporal CLI/);
});

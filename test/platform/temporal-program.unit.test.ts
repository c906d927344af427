/** Where the program of the embedded Temporal comes from when nothing can be downloaded, with a stand-in for Go. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { eventually } from '../eventually.ts';

/** Notes each build, and waits for a file before it ends one. The CLI is installed by its name, our own server built in its folder. */
const GO = `#!/bin/sh
[ "$1" = version ] && exit 0
echo "$*" >> "$CALLS"
[ -n "$GO_FAILS_AT" ] && [ "$1" = "$GO_FAILS_AT" ] && echo "no $1 today" && exit 1
while [ ! -e "$MAY_END" ]; do /bin/sleep 0.05; done
says='temporal version 0.0.0-DEV (Server 1.29.1, UI 2.42.1)'
program=$GOBIN/temporal
if [ "$1" = -C ]; then
  says='temporal-server (Server 1.32.2, UI 2.58.1)'
  while [ "$1" != -o ]; do shift; done
  program=$2
fi
printf '#!/bin/sh\\necho "%s"\\n' "$says" > "$program"
/bin/chmod +x "$program"
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
const CLI = () => ({ command: inDir('cache', 'temporal-1.5.1'), server: '1.29.1', isCli: true });

test('I97 processes that look for it at once have it built once, and later ones find it without Go', async () => {
  const processes = [begin(), begin(), begin()];
  await untilBuilding(1);
  letBuildsEnd();
  for (const one of processes) expect(await one.found()).toEqual(CLI());
  expect(builds()).toEqual(['install github.com/temporalio/cli/cmd/temporal@v1.5.1']);
  rmSync(inDir('bin', 'go'));
  expect(await begin().found()).toEqual(CLI());
});

test('I97 a process that was killed while it built holds nobody up', async () => {
  const first = begin();
  await untilBuilding(1);
  first.kill();
  const second = begin();
  await untilBuilding(2);
  letBuildsEnd();
  expect(await second.found()).toEqual(CLI());
});

test('I97 what cannot be built is tried with the other engine, unless one is asked for', async () => {
  letBuildsEnd();
  env = { ...env, GO_FAILS_AT: 'install' };
  const { problem } = await begin('--engine', '1.29').found();
  expect(problem).toMatch(/1\.20\.0, needed is 1\.29[^]*download: [^]*build: go failed[^]*no install today/);
  expect(await begin().found()).toEqual({
    command: expect.stringMatching(/cache\/temporal-server-[0-9a-f]{12}$/) as string,
    server: '1.32.2',
    isCli: false,
  });
});

test('I97 without Go it is said what was tried, and what to do', async () => {
  rmSync(inDir('bin', 'go'));
  const { problem } = await begin().found();
  expect(problem).toMatch(/Temporal 1\.29: build: go: not found[^]*Temporal 1\.32: build: go: not found/);
  expect(problem).toMatch(/Install the Temporal CLI/);
});

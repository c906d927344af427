/** Where the program of the embedded Temporal comes from when nothing can be downloaded, with a stand-in for Go. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { eventually } from '../eventually.ts';

/** Notes each build, and waits for a file before it ends one. */
const GO = `#!/bin/sh
[ "$1" = version ] && exit 0
while [ "$1" != -o ]; do shift; done
echo build >> "$CALLS"
[ -n "$GO_FAILS" ] && echo "no modules today" && exit 1
while [ ! -e "$MAY_END" ]; do /bin/sleep 0.05; done
printf '#!/bin/sh\\necho "temporal-server (Server 1.32.2, UI 2.0.0)"\\n' > "$2"
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
    // No server listens there, so that nothing is downloaded.
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
const BUILT = {
  command: expect.stringMatching('/cache/temporal-server-[0-9a-f]{12}$') as string,
  server: '1.32.2',
  isCli: false,
};

test('I97 processes that look for it at the same time have it built once more after the first was killed, and later ones find it without Go', async () => {
  const first = begin();
  await untilBuilding(1);
  const others = [begin(), begin()];
  first.kill();
  await untilBuilding(2);
  writeFileSync(inDir('may-end'), '');
  for (const one of others) expect(await one.found()).toEqual(BUILT);
  expect(builds()).toHaveLength(2);
  rmSync(inDir('bin', 'go'));
  expect(await begin().found()).toEqual(BUILT);
});

test('I97 what cannot be built says why, beside what else was tried', async () => {
  env = { ...env, GO_FAILS: 'yes' };
  const { problem } = await begin().found();
  expect(problem).toMatch(/1\.20\.0, needed is 1\.29[^]*download: [^]*build: go failed[^]*no modules today/);
  expect(problem).toMatch(/Install the Temporal CLI/);
});

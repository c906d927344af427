/** A notification type that is made in a copy of the sources, which must be whole afterwards. */
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ROOT = path.join(import.meta.dirname, '../..');
const NODE_MODULES = path.join(ROOT, 'node_modules');
const LIMIT_MS = 600_000;

let copy: string;
beforeAll(async () => {
  copy = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-new-type-'));
  const { stdout } = await run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
  });
  for (const file of stdout.split('\0').filter(Boolean)) {
    // A link may lead to a folder.
    cpSync(path.join(ROOT, file), path.join(copy, file), { recursive: true, verbatimSymlinks: true });
  }
  symlinkSync(NODE_MODULES, path.join(copy, 'node_modules'));
});
afterAll(() => rmSync(copy, { recursive: true, force: true }));

const make = (...args: string[]) => run(process.execPath, ['dev/new-type.ts', ...args], { cwd: copy });
/** A command of the copy; @throws with all that it has said. */
async function runIn(command: string, args: string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout, stderr } = await run(command, args, { cwd: copy, env: { ...process.env, ...env } }).catch(
    (error: { stdout?: string; stderr?: string }) => {
      throw new Error(`${command} ${args.join(' ')}\n${error.stdout ?? ''}${error.stderr ?? ''}`);
    },
  );
  return stdout + stderr;
}
const bin = (name: string, ...args: string[]) => runIn(path.join(NODE_MODULES, '.bin', name), args);

test('I76 what cannot be a type is refused with its reason, and changes nothing', async () => {
  const before = readFileSync(path.join(copy, 'api/intent/catalog.ts'), 'utf8');
  for (const [args, reason] of [
    [['game.turn.ready', '--field', 'a'], 'is in the catalog already'],
    [['Shop'], 'is no name of a type'],
    [['shop.order.shipped'], 'a type needs a payload'],
    [['shop.order.shipped', '--field', 'turn_number:text'], 'turn_number is count in game.turn.ready'],
    [['shop.order.shipped', '--field', 'a:colour'], 'Write name:kind'],
    [
      ['shop.order.shipped', '--field', 'a', '--audience', 'admin_email', '--channels', 'push,email'],
      'e-mail only',
    ],
  ] as const) {
    await expect(make(...args)).rejects.toMatchObject({ stderr: expect.stringContaining(reason) as string });
  }
  // Without flatc a type with push would be half a one.
  await expect(
    run(process.execPath, ['dev/new-type.ts', 'shop.order.shipped', '--field', 'order_id'], {
      cwd: copy,
      env: { ...process.env, PATH: '' },
    }),
  ).rejects.toMatchObject({
    stderr: expect.stringContaining('apt-get install flatbuffers-compiler') as string,
  });
  expect(readFileSync(path.join(copy, 'api/intent/catalog.ts'), 'utf8')).toBe(before);
});

test(
  'I76 three types, of users and of administrators, leave sources that compile and pass the unit tests, in all languages',
  async () => {
    await make(
      ...[
        'shop.order.shipped',
        '--field',
        'order_id:text',
        '--field',
        'items:count',
        '--field',
        'note:lines',
      ],
      ...['--summary', 'An order is on its way. To whoever has ordered.'],
    );
    await make(
      'shop.stock.low',
      '--audience',
      'admin_email',
      '--field',
      'product_id',
      '--field',
      'noticed_at_ms:time',
    );
    await make('game.round.closed', '--producer', 'game_master', '--audience', 'both', '--field', 'game_id');
    await bin('tsc', '-p', '.');
    await bin('prettier', '--check', 'api', 'client', 'test/intent', 'faults', 'config');
    await runIn(process.execPath, ['dev/configuration.ts', '--check']);
    const unit = await bin(
      ...(['jest', '--selectProjects', 'unit', '--maxWorkers', '2', '--rootDir', copy] as const),
      ...['test/intent', 'test/platform/config', 'test/platform/ledger', 'test/platform/fuzz'],
    );
    expect(unit).toMatch(/Tests: +\d+ passed/);
    await runIn('go', ['-C', 'clients/go', 'vet', './...']);
    expect(await runIn('go', ['-C', 'clients/go', 'test', '-count=1', './...'])).toMatch(/^ok\s+galaxy/m);
    const tests = ['-m', 'unittest', 'discover', '-s', 'clients/python/tests', '-t', 'clients/python'];
    expect(await runIn('python3', tests, { PYTHONDONTWRITEBYTECODE: '1' })).toMatch(/\nOK$/m);
  },
  LIMIT_MS,
);

/** Commands that change nothing: what they may do, and `--watch`. */
import { wholeProgram } from '../../cli/program.ts';
import { commandsBelow, isLook, pathOf } from '../../cli/read-only.ts';
import { readOutboxSql } from '../../client/outbox.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { asUser } from '../redis-users.ts';

/** What some of them look at. */
const ARGUMENTS: Record<string, (notificationId: string) => string[]> = {
  top: () => ['--once'],
  why: () => ['user-1'],
  'notifications show': (id) => [id],
  'operations show': () => ['op-0'],
  'malformed show': () => ['1-1'],
  'mobile show': () => ['1-1'],
  'callbacks show': () => ['user-1'],
  'subscriptions show': () => ['nothing'],
};

const REFUSED = /permission|NOPERM|denied|read-only transaction/i;

const slot = slotOfTests();
const program = cliOfTests(slot);
beforeAll(() => slot.startService());

test('U6 an operator who may only read can look at everything', async () => {
  const id = await publishTurn(slot.redis, 'looked-at');
  await eventually('the notification to be settled', async () => {
    const { rows } = await slot.db.query("SELECT FROM notification.routes WHERE status = 'published'");
    return rows.length === 2;
  });
  const role = `reader_${slot.slot}_${Date.now()}`;
  await slot.db.query(`CREATE ROLE ${role} LOGIN PASSWORD 'replace-reader' IN ROLE pg_read_all_data`);
  const dsn = new URL(slot.endpoints.postgresDsn);
  [dsn.username, dsn.password] = [role, 'replace-reader'];
  // The database of a producer, as it happens.
  await slot.db.query(await readOutboxSql());
  const changes = {
    ...asUser('reader'),
    NOTIFICATION_POSTGRES_PRIMARY_DSN: dsn.href,
    NOTIFICATION_OUTBOX_POSTGRES_DSN: dsn.href,
  };
  try {
    const wrong: object[] = [];
    const looks = commandsBelow(await wholeProgram())
      .filter(isLook)
      .map(pathOf);
    expect(looks).toEqual(expect.arrayContaining(Object.keys(ARGUMENTS)));
    for (const path of looks) {
      const args = [...path.split(' '), ...(ARGUMENTS[path]?.(id) ?? [])];
      const { code, stdout, stderr } = await program.cli(['--read-only', ...args, '--json'], { changes });
      // Done, or nothing there; these two may find something wrong.
      const isRead = code === 0 || code === 3 || path === 'doctor' || path === 'outbox status';
      if (!isRead || REFUSED.test(stdout + stderr)) wrong.push({ path, code, stdout, stderr });
    }
    expect(wrong).toEqual([]);
    await eventually('every connection to be closed', async () => {
      const { rows } = await slot.db.query('SELECT FROM pg_stat_activity WHERE usename = $1', [role]);
      const clients = (await slot.redis.client('LIST')) as string;
      const isOfReader = (line: string) =>
        line.includes(` db=${slot.slot} `) && line.includes(' user=reader ');
      return rows.length === 0 && !clients.split('\n').some(isOfReader);
    });
  } finally {
    await slot.db.query(`DROP ROLE ${role}`);
  }
}, 400_000);

test('U6 --read-only refuses what changes something, and lets a dry run through', async () => {
  const reads = ['--read-only', 'replay', '--channel', 'push', '--since', '1h', '--dry-run'];
  expect((await program.cli(reads)).stderr).not.toContain('--read-only refuses');
  for (const args of [
    ['bridge', 'pause', '--reason', 'x'],
    ['setup'],
    ['replay', '--channel', 'push', '--since', '1h', '--yes'],
    ['doctor', '--router', 'smp://x@127.0.0.1'],
  ]) {
    const { code, stderr } = await program.cli([...args, '--read-only']);
    expect([args, code]).toEqual([args, 2]);
    expect(stderr).toMatch(/^error: .+ changes something, which --read-only refuses$/m);
  }
  const { stdout } = await program.cli(['bridge', 'status']);
  expect(stdout).not.toContain('paused');
});

test('U6 --watch looks again and again, a line for each look as JSON, also after a look that failed', async () => {
  const watching = program.start(['notifications', 'list', '--watch', '1s', '--json']);
  const looks = () =>
    watching.written.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { items: { idempotencyKey: string }[] });
  const keys = () =>
    looks()
      .at(-1)
      ?.items.map(({ idempotencyKey }) => idempotencyKey) ?? [];
  try {
    await eventually('a first look', async () => looks().length > 0);
    const database = await slot.cutOffDatabase();
    await eventually('a look that fails', async () => watching.written.stderr.includes('error: '));
    await database.restore();
    await publishTurn(slot.redis, 'while-watched');
    await eventually('a look that sees it', async () => keys().includes('while-watched'));
  } finally {
    watching.send('SIGINT');
  }
  expect((await watching.ended).code).toBe(130);
});

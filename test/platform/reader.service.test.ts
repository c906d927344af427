/** Commands that change nothing, with the credentials of an operator who may change nothing. */
import { programOf } from '../../cli/program.ts';
import { commandsBelow, pathOf } from '../../cli/definition.ts';
import { readOutboxSql } from '../../client/outbox.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { bothPublished } from '../intent/rows.ts';
import { asUser } from '../redis-users.ts';

/** Their names. */
const LOOKS: readonly string[] = [
  ...['list', 'show', 'status', 'statistics', 'waiting', 'failed', 'overdue', 'doctor', 'top', 'why'],
];

/** What some of them look at. */
const ARGUMENTS: Record<string, (notificationId: string) => string[]> = {
  why: () => ['user-1'],
  'notifications show': (id) => [id],
  'operations show': () => ['op-0'],
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
  await bothPublished(slot, [id]);
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
    const looks = commandsBelow(programOf())
      .filter((command) => command.commands.length === 0 && LOOKS.includes(command.name()))
      .map(pathOf);
    expect(looks).toEqual(expect.arrayContaining(Object.keys(ARGUMENTS)));
    for (const path of looks) {
      const args = [...path.split(' '), ...(ARGUMENTS[path]?.(id) ?? [])];
      const { code, stdout, stderr } = await program.cli([...args, '--json'], { changes });
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

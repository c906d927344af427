/** Commands that only look, with the credentials of an operator who may change nothing, and the lists of the Web UI. */
import { programOf } from '../../cli/program.ts';
import { commandsBelow, pathOf } from '../../cli/definition.ts';
import { readOutboxSql } from '../../client/outbox.ts';
import type { View } from '../../client/resources.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { bothPublished, publishDead } from '../intent/rows.ts';
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
beforeAll(() => slot.startService({ NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1' }));

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
    const isOfReader = (line: string) => line.includes(` db=${slot.slot} `) && line.includes(' user=reader ');
    return rows.length === 0 && !clients.split('\n').some(isOfReader);
  });
}, 400_000);

test('U12 each view is a query that Temporal takes, and lists what its name says', async () => {
  const { workflow } = slot.client;
  const views = Object.fromEntries(
    operatorOf(slot)
      .views()
      .map(({ name, query }) => [name, query]),
  );
  const id = await publishDead(slot, 'dies');
  await eventually('the dead letter in its view', async () => {
    for await (const { workflowId } of workflow.list({ query: views['Dead letters']! }))
      if (workflowId.includes(id)) return true;
    return false;
  });
  const countOf = async (name: string) => (await workflow.count(views[name])).count;
  // The dead letter is shown before the route that started it has closed.
  await eventually('the failure in its view', async () => (await countOf('Failures of every kind')) > 0);
  const counts = await Promise.all(
    Object.keys(views).map(async (name) => [name, await countOf(name)] as const),
  );
  // Of the workflows that run as long as the service: none of these is a dead letter, an operation or a push.
  expect(Object.fromEntries(counts)).toMatchObject({
    ...{ 'Open operations': 0, 'Waiting: mobile pushes': 0 },
    ...{ 'Routes that are held': 0, 'Mobile pushes that failed': 0 },
  });
});

test('U12 the command prints links that open a view, and with --save links that save it too', async () => {
  const { value } = await program.json<{ items: View[] }>(['views']);
  for (const { name, query, link, saveLink } of value.items) {
    const [opens, saves] = [new URL(link!), new URL(saveLink!)];
    expect(opens.pathname).toMatch(/^\/namespaces\/[\w.-]+\/workflows$/);
    expect(Object.fromEntries(opens.searchParams)).toEqual({ query });
    expect(Object.fromEntries(saves.searchParams)).toEqual({ query, savedQuery: name });
  }
  expect((await program.cli(['views'])).stdout).toContain(value.items[0]!.link);
  expect((await program.cli(['views', '--save'])).stdout).toContain(value.items[0]!.saveLink);
  expect(operatorOf(slot).views()[0]).not.toHaveProperty('link');
});

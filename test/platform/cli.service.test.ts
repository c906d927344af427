/** The command line, from its help to its exit codes. */
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { DeadLetter } from '../../client/intent/intents.ts';
import type { NotificationView } from '../../client/intent/notifications.ts';
import { cliOfTests, spawnCli, startCommand } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { PUSH } from '../intent/rows.ts';
import { GATEWAY } from '../service-process.ts';

const FIELDS = ['--field', 'game_id=g', '--field', 'game_name=Andromeda', '--field', 'turn_number=3'];

const slot = slotOfTests();
const bench = cliOfTests(slot);
const cli: typeof bench.cli = (...args) => bench.cli(...args);
const json = <T>(args: string[]) => bench.json<T>(args);

beforeAll(() =>
  slot.startService({ NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms', NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms' }),
);

const publication = (key: string, ...more: string[]) => [
  ...['intents', 'publish', 'game.turn.ready', '--to', 'user-1', '--key', key, ...FIELDS, ...more],
];
const publish = (key: string, ...more: string[]) => cli(publication(key, ...more));

test('a reader that closes the pipe early ends the command without an error', async () => {
  const child = spawnCli(['completion', 'bash'], bench.env);
  child.stdout.destroy();
  const [errors, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  expect({ code: code as number, errors }).toEqual({ code: 0, errors: '' });
});

describe('finding the servers', () => {
  const onlyRedis = {
    NOTIFICATION_POSTGRES_PRIMARY_DSN: '',
    TEMPORAL_ADDRESS: '',
    NOTIFICATION_USER_SERVICE_BASE_URL: '',
  };
  const nothing = { ...onlyRedis, NOTIFICATION_REDIS_MASTER_ADDR: '' };
  const production = { NODE_ENV: 'production', NOTIFICATION_REDIS_PASSWORD: 'unused' };

  test('I30 what is not configured is taken from a running npm start', async () => {
    const endpoints = path.join(bench.dataDir, 'endpoints.json');
    const stack = {
      redisAddr: bench.env['NOTIFICATION_REDIS_MASTER_ADDR'],
      postgresDsn: bench.env['NOTIFICATION_POSTGRES_PRIMARY_DSN'],
      temporalAddress: bench.env['TEMPORAL_ADDRESS'],
      userServiceUrl: bench.env['NOTIFICATION_USER_SERVICE_BASE_URL'],
    };
    writeFileSync(endpoints, JSON.stringify({ ...stack, pid: process.pid }));
    expect((await cli(['bridge', 'status'], { changes: nothing })).code).toBe(0);

    // No process has the highest pid that there can be.
    writeFileSync(endpoints, JSON.stringify({ ...stack, pid: 4_194_303 }));
    const dead = await cli(['bridge', 'status'], { changes: nothing });
    rmSync(endpoints);
    expect(dead).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no npm start is running') as string,
    });
  });

  test('I30 I37 only what a command uses must be configured, also in production', async () => {
    expect(await cli(['channels', 'list'], { changes: production })).toMatchObject({ code: 0, stderr: '' });
    const changes = { ...onlyRedis, NODE_ENV: 'production' };
    expect(await cli(publication('only-redis'), { changes })).toMatchObject({
      ...{ code: 0, stdout: expect.stringMatching(/^\d+-\d+\n$/) as string },
    });
  });

  test.each<[string, string[], Record<string, string>, RegExp]>([
    ['no address', ['notifications', 'list'], nothing, /NOTIFICATION_POSTGRES_PRIMARY_DSN.*npm start/],
    [
      'no address to wait at',
      publication('only-redis', '--wait'),
      onlyRedis,
      /not set: NOTIFICATION_POSTGRES_PRIMARY_DSN, TEMPORAL_ADDRESS/,
    ],
    ['no key', ['tokens', 'register', '-'], production, /there is no key/],
    [
      'no PostgreSQL',
      ['notifications', 'list'],
      { NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://u:secret@127.0.0.1:1/db' },
      /cannot reach PostgreSQL at 127\.0\.0\.1:1 \(NOTIFICATION_POSTGRES_PRIMARY_DSN\)/,
    ],
    [
      'no Redis',
      publication('away'),
      { NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:1' },
      /cannot reach Redis at 127\.0\.0\.1:1 \(NOTIFICATION_REDIS_MASTER_ADDR\)/,
    ],
    [
      'a wrong password',
      publication('refused'),
      { NOTIFICATION_REDIS_USER: 'operator', NOTIFICATION_REDIS_PASSWORD: 'wrong' },
      /^error: Redis at \S+ refused the password \(NOTIFICATION_REDIS_PASSWORD\)/,
    ],
  ])('I30 I32 I37 with %s a command says so in one line', async (_, args, changes, words) => {
    const { code, stdout, stderr } = await cli(args, { changes, input: 'AT:a1b2c3' });
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringMatching(words)]);
    expect(stderr).not.toContain('secret');
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });
});

describe('intents', () => {
  test('I37 newcomer-3 publish waits for the routes; the same again is a duplicate, and what differs is named', async () => {
    const at = ['--occurred-at', '2026-01-31T11:00:00Z', '--wait'];
    const first = await publish('cli/repeated', ...at);
    expect(first.code).toBe(0);
    expect(first.stdout).toContain('accepted');
    expect(first.stdout).toMatch(/push:user:user-1\s+published/);
    for (const [more, said] of [
      [[], 'duplicate of'],
      [['--field', 'turn_number=9'], 'with other content (payload_json)'],
      [['--occurred-at', '2026-01-31T12:00:00Z'], 'with other content (occurred_at_ms)'],
    ] as const) {
      const again = await publish('cli/repeated', ...at, ...more);
      expect(again).toMatchObject({ code: 1, stdout: expect.stringContaining(said) });
    }
  });

  test('I37 publish refuses what the service would refuse, and takes a payload as JSON', async () => {
    const to = ['intents', 'publish', 'game.turn.ready', '--to', 'user-1', '--key', 'json'];
    const refused = await cli(to);
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringContaining('payload_json field game_id'),
    ]);
    expect((await cli([...to, '--payload', '[]'])).code).toBe(2);
    const published = await cli([...to, '--payload', '{"game_id":"g","game_name":"G","turn_number":1}']);
    expect(published.stdout).toMatch(/^\d+-\d+\n$/);
    expect(published.stderr).toContain('http://ui.test/namespaces/');
  });

  test('newcomer-3 a sample is published as often as asked, each with its own key', async () => {
    const sample = ['intents', 'publish', 'game.turn.ready', '--sample'];
    for (const _ of ['first', 'second']) {
      const { stdout } = await cli([...sample, '--wait', '--to', 'user-1', '--field', 'turn_number=9']);
      expect(stdout).toMatch(/push:user:user-1\s+published/);
      expect(stdout).toContain('"turn_number":9');
    }
  });
});

describe('looking', () => {
  test('I40 list and show, for people and for programs', async () => {
    await publish('looking', '--wait');
    const found = await json<{ items: { notificationId: string; acceptedAt: string }[] }>([
      ...['notifications', 'list', '--key', 'looking', '--since', '1h', '--producer', 'game_master'],
    ]);
    const acceptedAt = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/) as string;
    expect(found).toMatchObject({ code: 0, value: { items: [{ acceptedAt }] } });
    const { notificationId: id } = found.value.items[0]!;
    const shown = await cli(['notifications', 'show', id]);
    expect(shown).toMatchObject({ code: 0, stderr: '' });
    expect(shown.stdout).toContain('COMPLETED');
    // Not a terminal, so no colours, and links in a separate column.
    expect(shown.stdout).not.toContain('\u001b');
    const listed = await cli(['notifications', 'list', '--key', 'looking']);
    const link = `http://ui.test/namespaces/${slot.client.options.namespace}/workflows/notification%2F${id}`;
    for (const output of [shown.stdout, listed.stdout]) expect(output).toContain(link);
    expect(shown.stdout).toContain(`${link}%2Fpush%3Auser%3Auser-1`);

    expect(await cli(['notifications', 'show', '1-1'])).toMatchObject({ code: 3, stdout: '' });
    const none = await json<{ items: unknown[] }>(['notifications', 'list', '--key', 'no-such-key']);
    expect(none).toEqual({ code: 3, value: { items: [], hasMore: false } });
    expect(await cli(['notifications', 'cancel', id])).toMatchObject({ code: 3 });
  });

  test('I22 what a cancellation would reach is shown while Redis is away', async () => {
    const changes = { NOTIFICATION_REDIS_MASTER_ADDR: '127.0.0.1:1' };
    const cancel = ['notifications', 'cancel', '--type', 'game.finished', '--since', '1h', '--dry-run'];
    const { code, stderr } = await cli(cancel, { changes });
    expect([code, stderr]).toEqual([3, expect.stringContaining('no notification')]);
  });

  test('I40 a notification is shown while Temporal is away', async () => {
    const { stdout } = await publish('without-temporal', '--wait');
    const [id] = /\d{13}-\d+/.exec(stdout)!;
    const shown = await cli(['notifications', 'show', id], { changes: { TEMPORAL_ADDRESS: '127.0.0.1:1' } });
    expect(shown.stdout).toContain('Temporal did not answer');
    expect(shown.stdout).toMatch(/push:user:user-1\s+published/);
  });

  test('I6 malformed entries, with what they hold made harmless', async () => {
    const id = await slot.redis.xadd('notification:intents', '*', 'producer', 'evil\u001b[2J');
    const shown = await eventually('the refusal', async () => {
      const { stdout } = await cli(['notifications', 'show', id!]);
      return stdout.includes('refused') && stdout;
    });
    expect(shown).toContain('invalid_envelope');
    expect(shown).toContain('evil\\u001b[2J');
    expect(shown).not.toContain('\u001b');
    const list = await cli(['malformed', 'list', '--code', 'invalid_envelope']);
    expect(list.stdout).toContain(id);
    expect((await cli(['malformed', 'list', '--code', 'entry_too_large'])).code).toBe(3);
  });

  test('I40 doctor finds what is wrong, where, and what to do', async () => {
    const healthy = await bench.findings();
    expect(Object.values(healthy).filter(({ status }) => status === 'error')).toEqual([]);
    const isFine = { status: 'ok' };
    expect(healthy).toMatchObject({
      ...{ Redis: isFine, 'database schema': isFine, Temporal: isFine, 'workers: intent': isFine },
      ...{ 'stream reader': isFine, 'schedule intent-retention': isFine, 'User Service': isFine },
    });
    const [short, long] = await Promise.all([cli(['doctor']), cli(['doctor', '-v'])]);
    expect(short.stdout).toMatch(/^CHECK +STATUS +DETAIL\n\S.* +warn /);
    expect(short.stdout).not.toMatch(/ ok /);
    expect(short.stderr).toMatch(/^0 errors, \d+ warnings?, \d\d ok \(-v shows them\)\n$/);
    expect(long.stdout).toMatch(/^stream reader +ok /m);
    expect(long.stderr).toMatch(/^0 errors, \d+ warnings?\n$/);

    await slot.redis.set('mail:delivery_commands', 'not a stream');
    const changes = {
      TEMPORAL_ADDRESS: '127.0.0.1:1',
      NOTIFICATION_USER_SERVICE_BASE_URL: 'http://127.0.0.1:1',
    };
    const ill = await cli(['doctor', '--json'], { changes });
    const found = await bench.findings(changes);
    await slot.redis.del('mail:delivery_commands');
    expect(ill).toMatchObject({ code: 1, stderr: '3 errors, 1 warning\n' });
    const isWrong = { status: 'error' };
    expect(found).toMatchObject({
      ...{ Temporal: isWrong, 'User Service': isWrong, 'mail stream': isWrong, PostgreSQL: isFine },
    });
    expect(found).not.toHaveProperty(['workers: intent']);

    const misconfigured = await cli(['doctor'], { changes: { NOTIFICATION_SHUTDOWN_TIMEOUT: '0s' } });
    expect([misconfigured.code, misconfigured.stdout]).toEqual([
      ...[1, expect.stringContaining('NOTIFICATION_SHUTDOWN_TIMEOUT')],
    ]);
  });
});

describe('steering', () => {
  test('I22 I25 dead letters are listed, looked at before, and replayed', async () => {
    await slot.redis.set(GATEWAY, 'not a stream');
    expect((await publish('dead', '--wait')).code).toBe(1);
    const list = await json<{ items: object[] }>(['dead-letters', 'list', '--channel', 'push']);
    const failure = 'gateway_stream_publish_failed';
    const dead = { routeId: PUSH, routeRef: PUSH, failure, attempts: 3, status: 'dead_letter', replays: 0 };
    expect(list).toMatchObject({ code: 0, value: { items: [dead] } });
    expect((await cli(['dead-letters', 'list', '--failure', 'mail_stream_publish_failed'])).code).toBe(3);

    const bulk = ['replay', '--channel', 'push', '--since', '1h'];
    const dry = await cli([...bulk, '--dry-run']);
    expect([dry.code, dry.stderr]).toEqual([
      ...[0, expect.stringContaining('1 route would be replayed; nothing was done')],
    ]);
    const unasked = await cli(bulk);
    expect([unasked.code, unasked.stderr]).toEqual([2, expect.stringContaining('--yes')]);
    const again = await cli([...bulk, '--yes', '--wait']);
    expect([again.code, again.stdout]).toEqual([1, expect.stringContaining('1 died again')]);

    await slot.redis.del(GATEWAY);
    const healed = await json<{ outcome: unknown }>([...bulk, '--yes', '--wait', '--reason', 'healed']);
    expect(healed).toMatchObject({ code: 0, value: { outcome: { published: 1, diedAgain: 0, open: 0 } } });
    expect((await cli([...bulk, '--yes'])).code).toBe(3);
    expect((await cli(['dead-letters', 'list'])).code).toBe(3);
    const { value } = await json<{ items: DeadLetter[] }>(['dead-letters', 'list', '--all']);
    const { notificationId, routeId } = value.items[0]!;
    expect((await cli(['replay', notificationId, routeId])).code).toBe(3);
    const show = ['notifications', 'show', notificationId];
    expect((await cli(show)).stdout).toMatch(/Dead letters[^]*gateway_stream_publish_failed\s+published/);
    const request = { requestedBy: expect.stringMatching(/^cli:/) as string, reason: 'healed' };
    const { deadLetters, replays } = (await json<NotificationView>(show)).value;
    expect(deadLetters[0]).toMatchObject({ routeId: PUSH, status: 'published', replays: 2 });
    expect(replays[0]).toMatchObject({ routeId: PUSH, generation: 2, ...request });
  });

  test('U2 an operation that is followed to its end is told once, as JSON', async () => {
    const id = 'replay-2026-01-31-5f0c1a2b';
    await slot.db.query(
      `INSERT INTO notification.operations (operation_id, kind, filter, rate, requested_by, total, created_at)
       VALUES ($1, 'replay', '{}', 1, 'nina', 0, now())`,
      [id],
    );
    const { ended, written } = startCommand(['operations', 'show', id, '--follow', '--json'], bench.env);
    await eventually('it to be followed', () =>
      Promise.resolve(written.stderr.includes('goes on by itself')),
    );
    await slot.db.query(
      "UPDATE notification.operations SET ended_at = clock_timestamp(), outcome = 'done' WHERE operation_id = $1",
      [id],
    );
    expect((await ended).code).toBe(0);
    expect(JSON.parse(written.stdout)).toMatchObject({ status: 'done', outcome: { published: 0 } });
  });
});

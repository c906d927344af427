/** The rules of deploy/redis/users.acl, in a Redis that enforces them: no user reaches the keys of another. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Redis } from 'ioredis';
import { readOutcomes } from '../../client/outcomes.ts';
import { loadOffset, offsetKey } from '../../api/intent/stream.ts';
import { ofTests } from '../of-tests.ts';
import { createRedisServers } from '../redis-servers.ts';
import { USERS, makeUsers, passwordOf } from '../redis-users.ts';

const clients: Redis[] = [];
afterAll(() => clients.forEach((client) => client.disconnect()));
const servers = ofTests(createRedisServers, (made) => made.stop());
const server = ofTests(() => servers.start());
beforeAll(() => makeUsers(server.client));

function clientOf(user: string): Redis {
  const client = new Redis({
    ...{ ...server.address, username: user, password: passwordOf(user) },
    ...{ lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 },
  });
  client.on('error', () => undefined);
  clients.push(client);
  return client;
}

/** A key of each kind that there is, with who may write to it or read from it besides the service. */
const KEYS: Record<string, readonly string[]> = {
  'notification:intents': ['producer', 'outbox', 'notify-intent', 'operator', 'reader'],
  'notification:outcomes': ['outcomes', 'notify-intent', 'operator', 'reader'],
  'gateway:client-events': ['gateway', 'notify-intent', 'operator', 'reader'],
  'mail:delivery_commands': ['mail', 'notify-intent', 'operator', 'reader'],
  'notification:route_hand_offs:x:y:1': ['notify-intent', 'operator', 'reader'],
  'notification:route_leases:x:y': ['notify-intent', 'operator', 'reader'],
  'notification:voided_attempts:x': ['notify-intent', 'operator', 'reader'],
  'notification:stream_offsets:x': ['outbox', 'notify-intent', 'operator', 'reader'],
  'notification:stream_republished:x:1': ['notify-intent', 'operator', 'reader'],
  'notification:stream_beats:x': ['operator', 'reader'],
  ...Object.fromEntries(
    USERS.filter((name) => name.startsWith('notify-')).map((name) => [
      `notification:stream_beats:${name.slice('notify-'.length)}:x`,
      [name, 'operator', 'reader'],
    ]),
  ),
  'stream.notifications.jobs': ['producer', 'notify-mobile-push', 'operator', 'reader'],
  'notification:mobile_sends:x': ['notify-mobile-push', 'operator', 'reader'],
  'stream.account.extremes': ['producer', 'notify-account-callback', 'operator', 'reader'],
  'notification:subscription-events': ['notify-subscription', 'operator', 'reader'],
  'another:application': [],
};

/** Ways to read or change a key. */
const attemptsOn = (key: string): string[][] => [
  ['GET', key],
  ['SET', key, 'x'],
  ['DEL', key],
  ['XADD', key, '*', 'a', 'b'],
  ['XRANGE', key, '-', '+'],
  ['XREAD', 'STREAMS', key, '0'],
  ['XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', key, '>'],
  ['XTRIM', key, 'MAXLEN', '0'],
  ['XDEL', key, '1-1'],
  ['XGROUP', 'CREATE', key, 'g', '0'],
  ['EVAL', "return redis.call('GET', KEYS[1])", '1', key],
  ['EVAL', `return redis.pcall('XRANGE', '${key}', '-', '+')`, '0'],
  ['RENAME', key, `${key}:moved`],
  ['COPY', key, `${key}:copied`],
  ['DUMP', key],
  ['EXPIRE', key, '1'],
];
const FOR_ADMINISTRATORS = [
  ['KEYS', '*'],
  ['SCAN', '0'],
  ['CONFIG', 'GET', 'requirepass'],
  ['ACL', 'LIST'],
  ['ACL', 'SETUSER', 'x', 'on', 'nopass', '~*', '+@all'],
  ['FLUSHALL'],
  ['FLUSHDB'],
  ['MONITOR'],
  ['REPLICAOF', 'NO', 'ONE'],
  ['SHUTDOWN', 'NOSAVE'],
  ['SUBSCRIBE', 'x'],
  ['CLIENT', 'KILL', 'ID', '1'],
  ['FCALL', 'x', '0'],
  ['FUNCTION', 'LIST'],
  ['SCRIPT', 'KILL'],
];

/** @returns the commands that were carried out. */
async function acceptedOf(user: string, attempts: readonly string[][]): Promise<string[]> {
  const client = clientOf(user);
  const accepted: string[] = [];
  for (const [command, ...args] of attempts) {
    const refusal = await client.call(command!, ...args).then(
      () => undefined,
      (error: Error) => error.message,
    );
    if (refusal === undefined || !/NOPERM|permission|can't access|can't run/i.test(refusal)) {
      accepted.push(`${command} ${args.join(' ')}: ${refusal ?? 'done'}`);
    }
  }
  return accepted;
}

test.each(USERS)(
  'security-4 security-6 security-12 %s gets at no key of others, and at no command of administrators',
  async (user) => {
    const foreign = Object.entries(KEYS).flatMap(([key, who]) => (who.includes(user) ? [] : [key]));
    expect(foreign.length).toBeGreaterThan(0);
    const accepted = await acceptedOf(user, [...foreign.flatMap(attemptsOn), ...FOR_ADMINISTRATORS]);
    // An operator must be able to end a script of another user that does not end.
    expect(accepted).toEqual(user === 'operator' ? [expect.stringMatching(/^SCRIPT KILL/)] : []);
  },
);

test.each([
  // It appends to its streams, and can neither read nor change them.
  ['producer', ['notification:intents', 'stream.notifications.jobs', 'stream.account.extremes'], ['XADD']],
  // It deletes entries of outbound streams, and can neither add to nor trim them.
  ['operator', ['gateway:client-events', 'mail:delivery_commands'], ['EVAL', 'GET', 'XDEL', 'XRANGE']],
  ['reader', Object.keys(KEYS).filter((key) => KEYS[key]!.includes('reader')), ['GET', 'XRANGE']],
])('I79 U6 security-12 of its keys, %s may do with %j only %j', async (user, keys, commands) => {
  for (const key of keys) {
    const accepted = await acceptedOf(user, attemptsOn(key));
    expect(accepted.map((attempt) => attempt.split(' ')[0]).sort()).toEqual(commands);
  }
});

test('security-1 an operator sets the ids of a stream back that a producer has used up, and no other user', async () => {
  const producer = clientOf('producer');
  const stream = 'stream.notifications.jobs';
  const LAST = '18446744073709551615-18446744073709551615';
  await producer.xadd(stream, LAST, 'a', 'b');
  await expect(producer.xadd(stream, '*', 'a', 'b')).rejects.toThrow('exhausted');
  for (const user of USERS.filter((name) => name !== 'operator'))
    expect(await acceptedOf(user, [['XSETID', stream, '1-0']])).toEqual([]);
  const script = readFileSync(path.join(import.meta.dirname, '../../deploy/redis/set-ids-back.lua'), 'utf8');
  await server.client.xgroup('CREATE', stream, 'readers', LAST);
  await clientOf('operator').eval(script, 1, stream, LAST, 'readers');
  expect(await producer.xadd(stream, '*', 'a', 'b')).toMatch(/^1\d{12}-/);
  await server.client.del(stream);
});

test('security-12 the relay of an outbox reads the offset of the service, and does not move it', async () => {
  const redis = clientOf('outbox');
  const stream = 'notification:intents';
  expect(await loadOffset(redis, stream)).toBeDefined();
  await expect(redis.set(offsetKey(stream), '1-1')).rejects.toThrow(/NOPERM|permission/);
});

test('security-12 each reader of outcomes has its own password', async () => {
  const leaving = new AbortController();
  const reader = readOutcomes(clientOf('outcomes'), {
    ...{ group: 'shop', consumer: 'one', blockMs: 10, signal: leaving.signal },
    onUnreadable: () => leaving.abort(),
  });
  await server.client.xadd('notification:outcomes', '*', 'kind', 'none');
  // It was read, and acknowledged.
  expect(await reader.next()).toMatchObject({ done: true });
  expect(await server.client.xpending('notification:outcomes', 'shop')).toEqual([0, null, null, null]);
});

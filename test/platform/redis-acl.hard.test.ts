/**
 * The rules of deploy/redis/users.acl, in a Redis that enforces them: each role does its work under its own, and nobody
 * gets at what is another's.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { SEARCH_ATTRIBUTE_NAMES, loadConfig } from '../../config/load.ts';
import type { Stack } from '../../dev/servers/stack.ts';
import { startStack } from '../../dev/servers/stack.ts';
import { openCallbackWork } from '../account-callback/open-work.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { openIntentWork } from '../intent/open-work.ts';
import { openMobileWork } from '../mobile-push/open-work.ts';
import type { OpenWork } from '../open-work.ts';
import { createFleet } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';
import { openSubscriptionWork } from '../subscription/open-work.ts';
import { openSymbolWork } from '../symbol-config/open-work.ts';

const RULES = readFileSync(path.join(import.meta.dirname, '../../deploy/redis/users.acl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => line.split(' '));
const USERS = RULES.map(([, name]) => name!);

let dir: string;
let stack: Stack;
let slot: Slot;
let fleet: ReturnType<typeof createFleet>;
let works: OpenWork[] = [];
const clients: Redis[] = [];

beforeAll(async () => {
  dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-acl-'));
  stack = await startStack({
    dataDir: path.join(dir, 'servers'),
    durable: false,
    report: () => undefined,
    postgres: { port: 0 },
    redis: { port: 0 },
    temporal: {
      port: 0,
      cliPath: loadConfig().values.TEMPORAL_CLI_PATH,
      namespaces: [namespaceOf(1)],
      searchAttributes: SEARCH_ATTRIBUTE_NAMES,
    },
  });
  slot = await takeSlot(stack as Required<Stack>);
  fleet = createFleet(slot);
  for (const [, name, ...rule] of RULES) await slot.redis.call('ACL', 'SETUSER', name!, 'reset', ...rule);
}, 120_000);

afterAll(async () => {
  for (const client of clients) client.disconnect();
  await fleet.killAll();
  for (const work of works) await work.release();
  await slot.release();
  await stack.stop();
  rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}, 120_000);

const passwordOf = (user: string): string =>
  RULES.find(([, name]) => name === user)!
    .find((word) => word.startsWith('>'))!
    .slice(1);

function clientOf(user: string, password = passwordOf(user)): Redis {
  const { host, port } = slot.endpoints.redis;
  const client = new Redis({
    ...{ host, port, db: slot.slot, username: user, password },
    ...{ lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 },
  });
  client.on('error', () => undefined);
  clients.push(client);
  return client;
}

/** A key of each kind that there is, with who may write to it or read from it besides the service. */
const KEYS: Record<string, readonly string[]> = {
  'notification:intents': ['producer', 'notify-intent', 'operator'],
  'gateway:client-events': ['gateway', 'notify-intent', 'operator'],
  'mail:delivery_commands': ['mail', 'notify-intent', 'operator'],
  'notification:route_hand_offs:x:y:1': ['notify-intent', 'operator'],
  'notification:route_leases:x:y': ['notify-intent', 'operator'],
  'notification:voided_attempts:x': ['notify-intent', 'operator'],
  'notification:stream_offsets:x': [...USERS.filter((name) => name.startsWith('notify-')), 'operator'],
  'stream.notifications.jobs': ['producer', 'notify-mobile-push', 'operator'],
  'notification:mobile_sends:x': ['notify-mobile-push', 'operator'],
  'stream.account.inputs': ['producer', 'notify-account-callback', 'operator'],
  'notification:subscription-events': ['notify-subscription', 'operator'],
  'somebody:elses': [],
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
  ['DEBUG', 'SLEEP', '0'],
  ['REPLICAOF', 'NO', 'ONE'],
  ['SHUTDOWN', 'NOSAVE'],
  ['SUBSCRIBE', 'x'],
  ['CLIENT', 'KILL', 'ID', '1'],
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
    if (refusal === undefined || !/NOPERM|permission|can't access|No permissions/i.test(refusal)) {
      accepted.push(`${command} ${args.join(' ')}: ${refusal ?? 'done'}`);
    }
  }
  return accepted;
}

test.each(USERS)(
  'security-12 %s gets at no key of others, and at no command of administrators',
  async (user) => {
    const foreign = Object.entries(KEYS).flatMap(([key, who]) => (who.includes(user) ? [] : [key]));
    expect(foreign.length).toBeGreaterThan(0);
    expect(await acceptedOf(user, [...foreign.flatMap(attemptsOn), ...FOR_ADMINISTRATORS])).toEqual([]);
  },
);

test('security-12 a producer appends to its streams and can neither read nor change them', async () => {
  for (const stream of ['notification:intents', 'stream.notifications.jobs', 'stream.account.inputs']) {
    const accepted = await acceptedOf('producer', attemptsOn(stream));
    expect(accepted.filter((attempt) => !attempt.startsWith('XADD '))).toEqual([]);
  }
  await slot.redis.flushdb();
});

test('security-12 who has no user, no password, or that of somebody else, is not let in', async () => {
  await slot.redis.call('ACL', 'SETUSER', 'default', 'resetpass', '>administrator');
  try {
    for (const [user, password] of [
      ['producer', 'wrong'],
      ['producer', ''],
      ['producer', passwordOf('mail')],
      ['nobody', 'x'],
    ] as const) {
      await expect(clientOf(user, password).call('XLEN', 'notification:intents')).rejects.toThrow();
    }
  } finally {
    await slot.redis.call('ACL', 'SETUSER', 'default', 'nopass');
  }
});

test('security-12 each role does all of its work under its rule alone', async () => {
  const lent: Slot = { ...slot, release: async () => undefined };
  works = [
    openIntentWork(lent),
    await openMobileWork(lent, dir),
    await openSymbolWork(lent, dir),
    await openCallbackWork(lent),
    await openSubscriptionWork(lent),
  ];
  await slot.redis.call('ACL', 'LOG', 'RESET');
  const start = async () => {
    for (const { role, env } of works) {
      await fleet.start({
        ...env,
        NOTIFICATION_ROLES: role,
        NOTIFICATION_REDIS_USER: `notify-${role}`,
        NOTIFICATION_REDIS_PASSWORD: passwordOf(`notify-${role}`),
      });
    }
  };
  await start();
  await Promise.all(works.map((work) => work.begin()));
  await fleet.killAll();
  for (const work of works) await work.stopped?.();
  await start();
  await Promise.all(works.map((work) => work.heal()));
  const intent = newGameTurnReady({
    idempotencyKey: 'by-a-producer',
    recipientUserIds: ['user-1'],
    occurredAt: new Date(),
    payload: { game_id: 'g', game_name: 'g', turn_number: 1 },
  });
  await Promise.all(works.map((work) => work.finish()));
  expect(await publishIntent(clientOf('producer'), intent)).toMatch(/^\d+-\d+$/);
  // From Redis 7.2 on, clients say which library they are, and do without where they may not.
  const refused = ((await slot.redis.call('ACL', 'LOG')) as unknown[]).map((entry) => JSON.stringify(entry));
  expect(refused.filter((entry) => !entry.includes('client|setinfo'))).toEqual([]);
}, 400_000);

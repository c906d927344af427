/**
 * Intents of every type, some doubled, conflicting, malformed or for nobody: each that is good reaches everybody it is
 * for, on each channel, as one entry. What went in is what the stream holds: a producer that got no answer may have
 * appended twice, and that is a duplicate by its key like any other.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import {
  ADMIN_NOTIFICATION_TYPES,
  NOTIFICATION_TYPES,
  audiencesOf,
  channelsOf,
} from '../api/intent/catalog.ts';
import { entryFieldsOf, envelopeOf, parseIntent } from '../api/intent/entry.ts';
import type { Intent } from '../api/intent/entry.ts';
import { pairsOf } from '../activities/stream-read.ts';
import { sampleIntentOf } from '../client/intent/sample-intents.ts';
import { adminEmailsVariable } from '../config/intent.ts';
import { plantedMail, plantedMailPrefix, plantedText } from './planted.ts';
import type { Arena, Verdict, Work } from './work.ts';
import { noVerdict } from './work.ts';

const INTENTS = 'notification:intents';
const OUTBOUND = {
  push: ['gateway:client-events', 'event_id'],
  email: ['mail:delivery_commands', 'delivery_id'],
} as const;
const OFFSET_KEY = `notification:stream_offsets:${Buffer.from(INTENTS).toString('base64url')}`;
const USERS = 500;
const ADMIN = plantedMail('admin', 1);
/** Nobody knows this user. */
const UNKNOWN_USER = 'nobody-of-that-name';
const PAGE = 1_000;

/** When each outbound entry was first seen, for recovery times. */
export interface Arrivals {
  at: number[];
}

export async function openIntents(arena: Arena, arrivals: Arrivals): Promise<Work> {
  const random = arena.random('intents');
  for (let index = 1; index <= USERS; index += 1) arena.setUser(userOf(index), plantedMail('user', index));
  const consumer = consume(arena, arrivals);
  let replayed = 0;

  return {
    name: 'intent',
    env: Object.fromEntries(ADMIN_NOTIFICATION_TYPES.map((type) => [adminEmailsVariable(type), ADMIN])),
    planted: [
      { what: 'e-mail addresses of users', value: plantedMailPrefix('user'), mayBeInHistories: false },
      {
        what: 'e-mail address of administrators',
        value: plantedMailPrefix('admin'),
        mayBeInHistories: false,
      },
      { what: 'text of payloads', value: plantedText('payload'), mayBeInHistories: true },
    ],
    async load() {
      for await (const index of arena.spread(arena.intents)) {
        for (const fields of entriesFor(index)) {
          await arena.persist('an intent to be appended', () =>
            arena.redis.xadd(INTENTS, '*', ...fields.flat()),
          );
        }
        if (random.chance(0.02)) arena.userServiceFails(random.between(1, 5));
      }
    },
    async settle() {
      await arena.until('the reader to have passed every entry', async () => {
        const offset = await arena.redis.get(OFFSET_KEY);
        const [[lastId] = [null]] = await arena.redis.xrevrange(INTENTS, '+', '-', 'COUNT', 1);
        if (offset === lastId) return true;
        throw new Error(`it is at ${offset} of ${lastId}`);
      });
      await nothingOpen();
      // What Redis was away for too long for. An operator would do the same.
      for (;;) {
        const run = await arena.persist('a bulk replay', () =>
          arena.operator.replays.bulk(
            {},
            { ratePerSecond: 200, requestedBy: 'faults', reason: 'the servers are back' },
          ),
        );
        replayed += run.replayed.length;
        await nothingOpen();
        if (run.replayed.length === 0 && !run.failure) return;
      }
    },
    verify: () => verify(arena, consumer, replayed),
    async stop() {
      await consumer.stop();
    },
  };

  /** The entries of one intent: more than one when somebody repeats or contradicts it. */
  function entriesFor(index: number): Buffer[][][] {
    const type = random.oneOf(NOTIFICATION_TYPES);
    const audience = random.oneOf(audiencesOf(type));
    const intent = sampleIntentOf(type, audience, `faults/${index}`);
    const users = random.shuffled(Array.from({ length: 3 }, () => userOf(random.between(1, USERS))));
    const recipients = [...new Set(users.slice(0, random.oneOf([1, 1, 1, 2, 3])))];
    const content = (more: object, to = recipients) =>
      entryFieldsOf(
        envelopeOf({
          ...intent,
          ...(audience === 'user' ? { recipientUserIds: to } : {}),
          payloadJson: JSON.stringify({
            ...(JSON.parse(intent.payloadJson) as object),
            note: plantedText('payload'),
            ...more,
          }),
        }),
      ).map((field) => [...field]);
    const kind = random.next();
    const plain = content({ index });
    if (kind < 0.03) return [plain, plain];
    if (kind < 0.05) return [plain, content({ index: -index })];
    if (kind < 0.07)
      return [plain.filter(([name]) => String(name) !== random.oneOf(['producer', 'payload_json']))];
    if (kind < 0.08) return [[[Buffer.from('payload_json'), Buffer.from([0x7b, 0xff, 0x00])]]];
    if (kind < 0.1 && audience === 'user') return [content({ index }, [...recipients, UNKNOWN_USER])];
    return [plain];
  }

  async function nothingOpen(): Promise<void> {
    await arena.until('every route to be in a final state', async () => {
      const { rows } = await arena.db.query<{ open: number }>(
        "SELECT count(*)::int AS open FROM notification.routes WHERE status IN ('pending', 'failed')",
      );
      const running = await arena.temporal.workflow.count(
        "ExecutionStatus = 'Running' AND WorkflowType IN ('notification', 'notificationRoute', 'notificationRoutes')",
      );
      if (rows[0]!.open + running.count === 0) return true;
      throw new Error(`${rows[0]!.open} routes are open, ${running.count} workflows run`);
    });
  }
}

const indexOf = (payloadJson: string): number => (JSON.parse(payloadJson) as { index: number }).index;
const userOf = (index: number): string => `faults-user-${index}`;

/** Every entry of a stream, oldest first. */
async function* entriesIn(redis: Redis, stream: string): AsyncGenerator<[id: string, fields: Buffer[]]> {
  for (let from = '-'; ;) {
    const page = await redis.xrangeBuffer(stream, from, '+', 'COUNT', PAGE);
    for (const [id, fields] of page) yield [id.toString(), fields];
    if (page.length < PAGE) return;
    from = `(${page.at(-1)![0].toString()}`;
  }
}

interface Consumer {
  /** Ids of entries by the id that consumers tell deliveries apart by. */
  seen: Map<string, Set<string>>;
  stop(): Promise<void>;
}

/** Stands in for Gateway and Mail Service: reads both streams as they grow, each entry as often as it comes. */
function consume({ openRedis }: Arena, arrivals: Arrivals): Consumer {
  const seen = new Map<string, Set<string>>();
  let isStopping = false;
  const read = async ([stream, idField]: readonly [string, string]): Promise<void> => {
    const redis = openRedis();
    for (let last = '0-0'; !isStopping;) {
      const reply = await redis.xread('COUNT', 500, 'BLOCK', 500, 'STREAMS', stream, last).catch(() => null);
      if (!reply && redis.status !== 'ready') await sleep(50);
      for (const [id, fields] of reply?.[0]?.[1] ?? []) {
        const delivery = fields[fields.indexOf(idField) + 1]!;
        seen.set(delivery, (seen.get(delivery) ?? new Set()).add(id));
        arrivals.at.push(Date.now());
        last = id;
      }
    }
    redis.disconnect();
  };
  const running = Promise.all(Object.values(OUTBOUND).map(read));
  return {
    seen,
    async stop() {
      isStopping = true;
      await running;
    },
  };
}

interface Sent {
  wellFormed: Map<string, Intent>;
  malformed: Map<string, string>;
}

async function whatWasSent(redis: Redis): Promise<Sent> {
  const sent: Sent = { wellFormed: new Map(), malformed: new Map() };
  for await (const [id, fields] of entriesIn(redis, INTENTS)) {
    const parsed = parseIntent(id, pairsOf(fields));
    if (parsed.ok) sent.wellFormed.set(id, parsed.intent);
    else sent.malformed.set(id, parsed.malformed.failureCode);
  }
  return sent;
}

async function verify(arena: Arena, consumer: Consumer, replayed: number): Promise<Verdict> {
  const verdict = noVerdict();
  const { lost, duplicated, wrong } = verdict;
  const { wellFormed, malformed } = await whatWasSent(arena.redis);
  const rows = async <Row extends object>(sql: string) => (await arena.db.query<Row>(sql)).rows;
  const records = new Set(
    (await rows<{ id: string }>('SELECT notification_id AS id FROM notification.records')).map(
      ({ id }) => id,
    ),
  );
  const refusals = new Map(
    (
      await rows<{ id: string; code: string }>(
        'SELECT stream_entry_id AS id, failure_code AS code FROM notification.malformed_intents',
      )
    ).map(({ id, code }) => [id, code]),
  );
  const routes = new Map(
    (
      await rows<{ id: string; status: string }>(
        "SELECT notification_id || '/' || route_id AS id, status FROM notification.routes",
      )
    ).map(({ id, status }) => [id, status]),
  );

  // Of all that has one key exactly one is accepted; what has other content conflicts with it.
  const groups = new Map<string, Intent[]>();
  for (const intent of wellFormed.values()) {
    const key = `${intent.producer} ${intent.idempotencyKey}`;
    groups.set(key, [...(groups.get(key) ?? []), intent]);
  }
  const expected = new Map<string, 'published' | 'skipped'>();
  let refused = 0;
  for (const [key, group] of groups) {
    if (group[0]!.recipientUserIds.includes(UNKNOWN_USER)) {
      for (const { notificationId } of group) {
        refused += 1;
        if (refusals.get(notificationId) !== 'recipient_not_found')
          wrong.push(`${notificationId} was not refused`);
      }
      continue;
    }
    const accepted = group.filter(({ notificationId }) => records.has(notificationId));
    if (accepted.length === 0)
      lost.push(`${key}: none of ${group.map(({ notificationId }) => notificationId).join()}`);
    if (accepted.length > 1) duplicated.push(`${key} was accepted ${accepted.length} times`);
    const [first] = accepted;
    if (!first) continue;
    for (const [route, status] of routesOf(first)) expected.set(`${first.notificationId}/${route}`, status);
    for (const { notificationId, payloadJson } of group) {
      if (indexOf(payloadJson) === indexOf(first.payloadJson)) continue;
      refused += 1;
      if (refusals.get(notificationId) !== 'idempotency_conflict')
        wrong.push(`${notificationId} did not conflict`);
    }
  }
  for (const [id, code] of malformed) {
    if (refusals.get(id) !== code)
      lost.push(`malformed entry ${id}: ${refusals.get(id) ?? 'not recorded'}, not ${code}`);
  }
  if (refusals.size !== malformed.size + refused) {
    wrong.push(`${refusals.size} refusals are recorded, not ${malformed.size + refused}`);
  }

  // Rows and streams, each against what must be there.
  const delivered = new Map<string, number>();
  for (const [stream, idField] of Object.values(OUTBOUND)) {
    for await (const [, fields] of entriesIn(arena.redis, stream)) {
      const id = pairsOf(fields)
        .find(([name]) => name.toString() === idField)![1]
        .toString();
      delivered.set(id, (delivered.get(id) ?? 0) + 1);
    }
  }
  for (const [id, status] of expected) {
    const [is, entries] = [routes.get(id), delivered.get(id) ?? 0];
    if (is !== status)
      (is === undefined ? lost : wrong).push(`route ${id} is ${is ?? 'missing'}, not ${status}`);
    if (status === 'published' && entries === 0) lost.push(`route ${id} has no entry`);
    if (status === 'skipped' && entries > 0) wrong.push(`route ${id} is skipped and has ${entries} entries`);
  }
  for (const [id, entries] of delivered) {
    if (entries > 1) duplicated.push(`route ${id} has ${entries} entries`);
    if (!expected.has(id)) wrong.push(`entry ${id} was not expected`);
    const seen = consumer.seen.get(id)?.size ?? 0;
    if (seen !== entries)
      wrong.push(`${id} was read ${seen} times by a consumer, and is there ${entries} times`);
  }
  for (const id of consumer.seen.keys())
    if (!delivered.has(id)) lost.push(`entry ${id} was read and is gone`);
  for (const id of routes.keys()) if (!expected.has(id)) wrong.push(`route ${id} was not expected`);

  const published = [...routes.values()].filter((status) => status === 'published').length;
  const { workflow } = arena.temporal;
  await arena
    .until('as many notifications in Temporal as were sent', async () => {
      const { count } = await workflow.count(
        "WorkflowType = 'notification' AND ExecutionStatus = 'Completed'",
      );
      if (count === wellFormed.size) return true;
      throw new Error(`${count} of ${wellFormed.size} are completed`);
    })
    .catch((error: Error) => wrong.push(`${error.message}: ${(error.cause as Error).message}`));
  const deadLetters = await rows<{ count: number }>(
    'SELECT count(*)::int AS count FROM notification.dead_letters',
  );
  const entries = [...delivered.values()].reduce((sum, count) => sum + count, 0);
  if (entries !== published)
    wrong.push(`${published} routes are published, and the streams have ${entries} entries`);
  verdict.figures = {
    intents: wellFormed.size + malformed.size,
    accepted: records.size,
    refused: refusals.size,
    'routes published': published,
    entries,
    'dead letters': deadLetters[0]!.count,
    replayed,
  };
  return verdict;
}

/** What must become of an intent that was accepted, by route. */
function* routesOf({ notificationType, audienceKind, recipientUserIds }: Intent) {
  const channels = channelsOf(notificationType, audienceKind);
  const refs = audienceKind === 'user' ? recipientUserIds.map((id) => `user:${id}`) : [`email:${ADMIN}`];
  for (const ref of refs) {
    for (const channel of ['push', 'email'] as const) {
      yield [`${channel}:${ref}`, channels.includes(channel) ? 'published' : 'skipped'] as const;
    }
  }
}

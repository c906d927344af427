/**
 * Intents of every type, some doubled, conflicting, malformed or for unknown users: each good intent reaches each
 * recipient on each channel as one entry. ledger/intent.ts judges.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { openConsumers } from './consumers.ts';
import type { World } from './ledger/deliveries.ts';
import type { SentIntent } from './ledger/intent-entries.ts';
import { entryOf } from './ledger/intent-entries.ts';
import type { IntentRows } from './ledger/intent.ts';
import { judgeIntents } from './ledger/intent.ts';
import type { Audience } from './ledger/notification-types.ts';
import { TYPES, WINDOW_MS, payloadOf } from './ledger/notification-types.ts';
import { judgeOutcomes } from './ledger/outcomes.ts';
import type { Verdict } from './ledger/verdict.ts';
import { CHARGES } from './ledger/verdict.ts';
import type { Listener } from './outcomes.ts';
import { openListener } from './outcomes.ts';
import { plantedMail, plantedMailPrefix, plantedText } from './planted.ts';
import { NotFoundError } from '../client/errors.ts';
import type { Arena, Work } from './work.ts';

const INTENTS = 'notification:intents';
const OFFSET_KEY = `notification:stream_offsets:${Buffer.from(INTENTS).toString('base64url')}`;
const USERS = 500;
/** Recipients of types with a throttle or windows, so that many of them have enough. */
const FEW_USERS = 20;
/** How many of the other intents are for later, and by how much at most, ms. */
const FOR_LATER = 0.07;
const LATER_MS = 40_000;
const LANGUAGES = ['en', 'de', '', 'en-US', 'EN', 'not a language'];
const ADMINS = [plantedMail('admin', 1), plantedMail('admin', 2)];
/** Of one replay of everything, in which servers may be away. */
const OPERATION_LIMIT_MS = 600_000;
/** This user does not exist. */
const UNKNOWN_USER = 'user-who-does-not-exist';

const RUNNING =
  "ExecutionStatus = 'Running' AND WorkflowType IN ('notification', 'notificationRoute', 'notificationRoutes')";

/** When each outbound entry was first seen, for recovery times. */
export interface Arrivals {
  at: number[];
}

export async function openIntents(arena: Arena, arrivals: Arrivals): Promise<Work> {
  const random = arena.random('intents');
  const users = new Map(
    Array.from({ length: USERS }, (_, index) => [
      userOf(index + 1),
      {
        email: plantedMail('user', index + 1),
        preferredLanguage: LANGUAGES[index % LANGUAGES.length]!,
      },
    ]),
  );
  for (const [id, user] of users) arena.setUser(id, user);
  const world: World = { users, admins: ADMINS };
  const producer = arena.openProducer(INTENTS, entryOf);
  const listener = arena.outcomes === 'none' ? undefined : openListener(arena);
  const consumers = openConsumers(arena.openRedis, (at) => arrivals.at.push(at));
  /** Routes that were said to be replayed, and orders of which nothing is known. */
  const replays: string[] = [];
  let unknownReplays = 0;

  return {
    name: 'intent',
    env: {
      NOTIFICATION_CATALOG_FILE: writeCatalog(arena.dataDir),
      // Every entry is counted in the end.
      ...(listener === undefined
        ? {}
        : { NOTIFICATION_OUTCOMES: arena.outcomes, NOTIFICATION_OUTCOMES_STREAM_MAX_LEN: '10000000' }),
      ...Object.fromEntries(
        Object.entries(TYPES).flatMap(([type, { channels }]) =>
          channels.admin_email ? [[adminVariableOf(type), ADMINS.join()]] : [],
        ),
      ),
    },
    planted: [
      { what: 'e-mail addresses of users', value: plantedMailPrefix('user') },
      {
        what: 'e-mail address of administrators',
        value: plantedMailPrefix('admin'),
      },
      { what: 'text of payloads', value: plantedText('payload') },
    ],
    async load() {
      for await (const index of arena.spread(arena.intents)) {
        for (const sent of intentsOf(index)) await producer.post(sent);
        if (random.chance(0.02)) arena.userServiceFails(random.between(1, 5));
      }
    },
    async settle() {
      await arena.persist('what the stream has lost to be put in again', () => producer.repeatLost());
      await arena.until('the reader to have passed every entry', async () => {
        const offset = await arena.redis.get(OFFSET_KEY);
        const [[lastId] = [null]] = await arena.redis.xrevrange(INTENTS, '+', '-', 'COUNT', 1);
        if (offset === lastId) return true;
        throw new Error(`it is at ${offset} of ${lastId}`);
      });
      await nothingOpen();
      // What Redis was away for too long for. An operator would do the same.
      for (;;) {
        const run = await arena.persist('a bulk replay', async () => {
          unknownReplays += 1;
          const ended = await replayAll();
          unknownReplays -= 1;
          return ended;
        });
        replays.push(...run.map(({ notificationId, routeId }) => `${notificationId}/${routeId}`));
        await nothingOpen();
        if (run.length === 0) break;
      }
      if (arena.hasLost()) await streamsWhole();
      if (listener) await allTold(listener);
    },
    verify,
    async stop() {
      producer.stop();
      await Promise.all([consumers.stop(), listener?.stop()]);
    },
  };

  /** @returns the routes that it gave an order about; none when nothing is dead. */
  async function replayAll(): Promise<{ notificationId: string; routeId: string }[]> {
    const { operations } = arena.operator;
    try {
      const { operationId } = await operations.begin(
        'replay',
        {},
        { ratePerSecond: 200, requestedBy: 'faults', reason: 'the servers are back' },
      );
      await operations.follow(operationId, { limitMs: OPERATION_LIMIT_MS });
      const { rows } = await arena.db.query<{ notificationId: string; routeId: string }>(
        `SELECT notification_id AS "notificationId", route_id AS "routeId"
           FROM notification.operation_items
          WHERE operation_id = $1 AND was_ordered`,
        [operationId],
      );
      return rows;
    } catch (error) {
      if (error instanceof NotFoundError) return [];
      throw error;
    }
  }

  /** The intents of one index: more than one when the producer repeats or contradicts it. */
  function intentsOf(index: number): SentIntent[] {
    const type = random.oneOf(Object.keys(TYPES));
    const audience = random.oneOf(Object.keys(TYPES[type]!.channels) as Audience[]);
    const { throttle, collapse } = TYPES[type]!;
    const most = throttle === undefined && collapse === undefined ? USERS : FEW_USERS;
    const chosen = random.shuffled(Array.from({ length: 3 }, () => userOf(random.between(1, most))));
    const recipients = [...new Set(chosen.slice(0, random.oneOf([1, 1, 1, 2, 3])))];
    const kind = random.next();
    const isForLater = random.chance(FOR_LATER) && collapse === undefined;
    const laterMs = random.between(1, LATER_MS);
    const sentWith = (mark: string, more: Partial<SentIntent> = {}): SentIntent => ({
      mark,
      type,
      audience,
      recipients: audience === 'user' ? recipients : [],
      key: `faults/${index}`,
      payload: { ...payloadOf(type, mark, index), note: plantedText('payload'), mark },
      occurredAtMs: Date.now(),
      ...(isForLater ? { deliverAtMs: Date.now() + laterMs } : {}),
      // A delivery of a window has those of the intent whose route carries it.
      ...(index % 2 === 0 && collapse === undefined ? { requestId: `request-${index}` } : {}),
      ...(index % 3 === 0 && collapse === undefined ? { traceId: `trace-${index}` } : {}),
      fate: 'delivered',
      ...more,
    });
    const plain = sentWith(`mark-${index}`);
    const other = `mark-${arena.intents + index}`;
    if (kind < 0.03) return [plain, plain];
    if (kind < 0.05) return [plain, sentWith(other)];
    if (kind < 0.07)
      return [{ ...plain, fate: 'malformed', missing: random.oneOf(['producer', 'payload_json']) }];
    if (kind < 0.08) return [{ ...plain, fate: 'malformed' }];
    if (kind < 0.1 && audience === 'user' && collapse === undefined)
      return [{ ...plain, recipients: [...recipients, UNKNOWN_USER], fate: 'recipient_not_found' }];
    return [plain];
  }

  async function nothingOpen(): Promise<void> {
    await arena.until('every route to be in a final state', async () => {
      const { rows } = await arena.db.query<{ open: number; waiting: number }>(
        `SELECT (SELECT count(*)::int FROM notification.routes WHERE status IN ('pending', 'failed')) AS open,
                (SELECT count(*)::int FROM notification.intents WHERE status = 'open') AS waiting`,
      );
      const running = await arena.temporal.workflow.count(RUNNING);
      const { open, waiting } = rows[0]!;
      if (open + waiting + running.count === 0) return true;
      if (open + waiting === 0 && arena.hasLost()) await endStuck();
      throw new Error(`${open} routes are open, ${waiting} intents wait, ${running.count} workflows run`);
    });
  }

  /** What cannot go on in a Temporal that was put back, and has nothing left to do: ended within the hour, or when asked. */
  async function endStuck(): Promise<void> {
    await arena.temporal.schedule.getHandle('intent-reconciliation').trigger();
  }

  /** What an outbound stream has lost is handed off again. */
  async function streamsWhole(): Promise<void> {
    await arena.until('the outbound streams to be whole', async () => {
      await consumers.catchUp();
      const { rows } = await arena.db.query<{ suspect: number }>(
        'SELECT count(*)::int AS suspect FROM notification.outbound_streams WHERE suspect_since IS NOT NULL',
      );
      if (rows[0]!.suspect === 0) return true;
      throw new Error(`${rows[0]!.suspect} are suspect`);
    });
  }

  async function allTold(of: Listener): Promise<void> {
    await arena.until('every outcome to be in its stream', async () => {
      const { rows } = await arena.db.query<{ left: number }>(
        'SELECT count(*)::int AS left FROM notification.outcomes WHERE relayed_at IS NULL',
      );
      if (rows[0]!.left > 0) throw new Error(`${rows[0]!.left} rows wait`);
      await of.catchUp();
      return true;
    });
  }

  /** Joins what is said about outcomes to what is said about intents. */
  async function judgeTold(verdict: Verdict, of: Listener, rows: IntentRows): Promise<void> {
    const entries: string[] = [];
    for (let from = '-'; ;) {
      const page = await arena.redis.xrange(INTENTS, from, '+', 'COUNT', 1_000);
      entries.push(...page.map(([id]) => id));
      if (page.length < 1_000) break;
      from = `(${page.at(-1)![0]}`;
    }
    const routes = new Map<string, number>();
    for (const key of rows.routes.keys()) {
      const id = key.slice(0, key.indexOf('/'));
      routes.set(id, (routes.get(id) ?? 0) + 1);
    }
    const judged = judgeOutcomes({
      told: of.told(),
      entries,
      routes,
      refusals: rows.refusals,
      mayRepeat: arena.hasLost(),
    });
    for (const charge of CHARGES) verdict[charge].push(...judged[charge].map((line) => `outcomes: ${line}`));
    verdict.repeated += judged.repeated;
    for (const [name, value] of Object.entries(judged.figures)) verdict.figures[`outcomes: ${name}`] = value;
  }

  async function verify(): Promise<Verdict> {
    const gone = await consumers.catchUp();
    const hasLost = arena.hasLost();
    const rows = await rowsOf();
    const verdict = judgeIntents({
      postings: producer.postings,
      world,
      sightings: consumers.sightings(),
      rows,
      replays,
      unknownReplays,
      mayRepeat: hasLost,
    });
    if (!hasLost) verdict.lost.push(...gone.map((entry) => `${entry} was read and is gone`));
    const missing = await producer.repeatLost();
    if (missing > 0) verdict.lost.push(`the stream lacks ${missing} intents that it had acknowledged`);
    verdict.figures['replayed'] = replays.length;
    if (listener) await judgeTold(verdict, listener, rows);
    return verdict;
  }

  async function rowsOf(): Promise<IntentRows> {
    const pairs = async <Value = string>(sql: string) => {
      const { rows } = await arena.db.query<{ id: string; value: Value }>(sql);
      return new Map(rows.map(({ id, value }) => [id, value]));
    };
    const { rows: generations } = await arena.db.query<IntentRows['generations'][number]>(
      `SELECT notification_id || '/' || route_id AS id, generation,
              (extract(epoch FROM created_at) * 1000)::float8 AS "openedAt"
         FROM notification.replays`,
    );
    return {
      generations,
      entries: await pairs<string | null>(
        `SELECT coalesce(collapse ->> 'newest', notification_id) || '/' || route_id AS id, entry_id AS value
           FROM notification.routes
          WHERE entry_id IS NOT NULL`,
      ),
      refusals: await pairs(
        'SELECT stream_entry_id AS id, failure_code AS value FROM notification.malformed_intents',
      ),
      marks: await pairs(
        "SELECT notification_id AS id, payload_json::jsonb ->> 'mark' AS value FROM notification.records",
      ),
      routes: await pairs(
        "SELECT notification_id || '/' || route_id AS id, status AS value FROM notification.routes",
      ),
    };
  }
}

/** The catalog of Galaxy, with throttles and windows. @returns its file. */
function writeCatalog(folder: string): string {
  const file = path.join(folder, 'catalog.yaml');
  const galaxy = readFileSync(path.join(import.meta.dirname, '../catalog/galaxy.yaml'), 'utf8');
  const text = Object.entries(TYPES).reduce((catalog, [type, { throttle, collapse }]) => {
    const digest = collapse === 'digest' ? ', digest: { items: 100, bytes: 32768 }' : '';
    const policies = [
      ...(throttle === undefined ? [] : [`throttle: { limit: ${throttle}, window: 31d, per: [recipient] }`]),
      ...(collapse === undefined ? [] : [`collapse: { key: [], window: ${WINDOW_MS}ms${digest} }`]),
    ];
    return catalog.replace(`\n  ${type}:\n`, `$&${policies.map((one) => `    ${one}\n`).join('')}`);
  }, galaxy);
  writeFileSync(file, text);
  return file;
}

const userOf = (index: number): string => `faults-user-${index}`;

/** `NOTIFICATION_ADMIN_EMAILS_` and the type in capitals. */
const adminVariableOf = (type: string): string =>
  `NOTIFICATION_ADMIN_EMAILS_${type.toUpperCase().replaceAll('.', '_')}`;

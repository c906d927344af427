/**
 * Places that keep something of people. Each kind of work lists its own for `users forget`, and says what became of deliveries
 * to a user, for `why`. Each statement and each read is bounded, whatever a
 * table or a stream holds.
 */
import type { SkipReason } from '../api/intent/outcome.ts';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { isJsonObject, jsonIn } from '../api/text.ts';
import { LAST_ENTRY_ID, STREAM_START, compareEntryIds, fieldsOf } from '../api/stream-ids.ts';
import { OperationFailedError } from './errors.ts';

/** Rows that one step of a walk covers. */
const WALK_STEP = 2_000;
/** Entries and bytes that Redis reads in one step. A single entry may have more bytes. */
const STEP = 200;
const STEP_BYTES = 4 << 20;
/** A longer value of a field is not read. */
const MAX_VALUE_BYTES = 1 << 18;

/** A person, and how rows and entries name the person. */
export interface Person {
  userId: string;
  /** The number of the user within the agent of subscriptions, which knows no user ids. */
  subscriptionUser?: number;
  /** The recipient of a route: the user, or an administrator by the address. */
  recipientRefs: readonly string[];
  /** Ids of the routes of these recipients. */
  routeIds: readonly string[];
  /** The id, the addresses of the routes, and the values that the caller adds; as JSON, and as JSON within a JSON text. */
  quoted: readonly string[];
  nested: readonly string[];
  /** A pattern of PostgreSQL: a JSON field for user ids, as group 1, and the id in it. */
  inUserField: string;
  /** Finds one of the values where neither letter nor digit is next to it; for PostgreSQL, and for JavaScript. */
  pattern: string;
  names: RegExp;
}

export function personOf(userId: string, more: readonly string[], subscriptionUser?: number): Person {
  const values = [...new Set([userId, ...more])];
  const quoted = values.map((value) => JSON.stringify(value));
  const recipientRefs = [`user:${userId}`, `email:${userId}`];
  return {
    userId,
    ...(subscriptionUser === undefined ? {} : { subscriptionUser }),
    recipientRefs,
    routeIds: ['push', 'email'].flatMap((channel) => recipientRefs.map((ref) => `${channel}:${ref}`)),
    quoted,
    nested: quoted.map((value) => JSON.stringify(value).slice(1, -1)),
    inUserField: `("(?:[a-z_]+_)?user_id"[[:space:]]*:[[:space:]]*)${escapedForPostgres(quoted[0]!)}`,
    pattern: `(?<![[:alnum:]])(?:${values.map(escapedForPostgres).join('|')})(?![[:alnum:]])`,
    names: new RegExp(`(?<![\\p{L}\\p{N}])(?:${values.map(escaped).join('|')})(?![\\p{L}\\p{N}])`, 'u'),
  };
}

const escaped = (value: string): string => value.replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);

/** PostgreSQL takes any character but letters and digits literally behind a backslash. */
const escapedForPostgres = (value: string): string =>
  value.replaceAll(/[^\p{L}\p{N}]/gu, (character) => `\\${character}`);

/** A place as `users forget` works on it. */
export interface Place {
  /** A table with its schema, or a stream. */
  what: string;
  /** Counts what can go now. Changes nothing. */
  count(): Promise<number>;
  /** Deletes or blanks it; a repeat goes on after a cut. @returns how much it was. */
  forget(): Promise<number>;
}

/** What still needs the person. */
export interface UnderWay {
  /** Finds ids: a statement that selects `id` and takes a limit, with its values; or a function. */
  ids: readonly [statement: string, ...values: unknown[]] | (() => Promise<readonly string[]>);
  what: string;
  advice: string;
  /** Default: `notification`. */
  thing?: string;
}

/** What is still there afterwards. */
export interface Remaining {
  what: string;
  /** What ends it. */
  ends: string;
}

/** Rows of a table, as data for `users forget`. */
export interface TableOfPeople {
  table: string;
  /** Columns of its key. */
  key: readonly string[];
  /** SQL with `values`, as $1, $2 and so on. */
  where: string;
  values: readonly unknown[];
  /** What becomes of the rows; default: they are deleted. */
  set?: string;
  /** An index finds the rows to delete. Without one, the program walks over the table by its key. */
  isIndexed?: boolean;
  /** Of another service: rows that this role may not delete stay, and `remains` names them. */
  isForeign?: boolean;
}

/** What a kind of work keeps of a person. */
export interface Personal {
  /** In the order in which they are worked on. */
  places: readonly (TableOfPeople | Place)[];
  underWay?: readonly UnderWay[];
  remains?(): Promise<Remaining[]>;
}

/**
 * Goes through a table by its key, in steps of WALK_STEP rows.
 *
 * @param work gets SQL that holds for the rows of a step, and the values of that SQL behind those given.
 * @returns the sum of what it returned.
 */
export async function walk(
  db: Pool,
  { table, key }: Pick<TableOfPeople, 'table' | 'key'>,
  values: readonly unknown[],
  work: (range: string, all: unknown[]) => Promise<number>,
): Promise<number> {
  const keys = key.join(', ');
  const row = (first: number) => `(${key.map((_, i) => `$${first + i}`).join(', ')})`;
  let total = 0;
  for (let from: unknown[] = []; ;) {
    const { rows } = await db.query<Record<string, unknown>>(
      `SELECT ${keys} FROM ${table} WHERE ${from.length > 0 ? `(${keys}) > ${row(1)}` : 'true'}
        ORDER BY ${keys} OFFSET ${WALK_STEP} LIMIT 1`,
      from,
    );
    const upTo = rows[0] ? key.map((column) => rows[0]![column]) : [];
    const first = values.length + 1;
    const range = [
      ...(from.length > 0 ? [`(${keys}) > ${row(first)}`] : []),
      ...(upTo.length > 0 ? [`(${keys}) <= ${row(first + from.length)}`] : []),
    ];
    total += await work(range.join(' AND ') || 'true', [...values, ...from, ...upTo]);
    if (upTo.length === 0) return total;
    from = upTo;
  }
}

/** SQL of a refused entry that has one of the texts of $1. */
export const HAS_NAME =
  'EXISTS (SELECT FROM unnest($1::text[]) AS one (value) WHERE strpos(raw_fields::text, one.value) > 0)';

/** @returns the ids that a statement selects. */
export async function idsOf(db: Pool, statement: string, values: unknown[]): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(statement, values);
  return rows.map(({ id }) => id);
}

/** Values of some fields. A field that the entry does not have, or that is too long, is absent. */
type Fields = Readonly<Record<string, string | undefined>>;

interface ReadEntry {
  id: string;
  /** The user's id stands in the entry as a JSON text. */
  isNamed: boolean;
  fields: Fields;
}

/** How the readers of a stream stand to an entry. `ungrouped`: there is no consumer group. */
type Reading = 'unread' | 'pending' | 'read' | 'ungrouped';

interface StreamOfPeople {
  redis: Redis;
  stream: string;
  userId: string;
  /** Fields that are read. */
  names: readonly string[];
  /** Loads what the other functions need to know of these entries. */
  load?(entries: readonly ReadEntry[]): Promise<void>;
  /** Whether an entry is about the person alone. */
  isOwn(fields: Fields): boolean;
  /** Default: as all consumer groups stand together. */
  readingOf?(ids: readonly string[]): Promise<readonly Reading[]>;
  /** Whether an own entry can go. Default: when it is read. */
  isRemovable?(reading: Reading, fields: Fields): boolean;
}

export interface StreamPlace extends Place {
  /** Found by the last `count` or `forget`: own entries that cannot go yet, and entries of others that name the person. */
  left(): { own: readonly string[]; mentions: readonly string[] };
}

/** Entries of a stream, deleted one by one. An entry that its reader still needs stays. */
export function streamOf(of: StreamOfPeople): StreamPlace {
  const { redis, stream, userId, names, load, isOwn, isRemovable = (reading) => reading === 'read' } = of;
  const readingOf = of.readingOf ?? ((ids: readonly string[]) => readingOfGroups(redis, stream, ids));
  let left: ReturnType<StreamPlace['left']> = { own: [], mentions: [] };
  async function pass(remove: boolean): Promise<number> {
    const own: string[] = [];
    const mentions: string[] = [];
    left = { own, mentions };
    let total = 0;
    for (let after: string | undefined = STREAM_START; after !== undefined;) {
      const page: EntriesRead = await readEntries(redis, stream, after, userId, names);
      await load?.(page.entries);
      const found = page.entries.filter(({ fields }) => isOwn(fields));
      const readings = found.length === 0 ? [] : await readingOf(found.map(({ id }) => id));
      const doomed = found.filter(({ fields }, i) => isRemovable(readings[i]!, fields));
      own.push(...found.filter((entry) => !doomed.includes(entry)).map(({ id }) => id));
      const others = page.entries.filter((entry) => entry.isNamed && !found.includes(entry));
      mentions.push(...others.map(({ id }) => id));
      total += doomed.length;
      if (remove && doomed.length > 0) await redis.xdel(stream, ...doomed.map(({ id }) => id)).catch(explain);
      after = page.last;
    }
    return total;
  }
  return {
    what: stream,
    count: () => pass(false),
    forget: () => pass(true),
    left: () => left,
  };

  function explain(error: unknown): never {
    if (!(error instanceof Error && error.message.startsWith('NOPERM'))) throw error;
    throw new OperationFailedError(
      `the user of Redis may not delete entries of ${stream}: give it the rule of operators (docs/deploy/redis.md)`,
      { cause: error },
    );
  }
}

/** Entries that no reader has taken yet, as a reason to wait. @param known ids that another sentence names. */
export const notTaken = (
  { what, count, left }: StreamPlace,
  thing: string,
  known: () => Promise<readonly string[]> = async () => [],
): UnderWay => ({
  async ids() {
    await count();
    const others = await known();
    return left().own.filter((id) => !others.includes(id));
  },
  what: `is in ${what} and not taken yet`,
  advice: 'wait; galaxy-notify doctor says whether a process takes them',
  thing,
});

/** Whether a JSON text is an object with this field and this value. */
export function hasField(text: string | undefined, field: string, value: string): boolean {
  const object = jsonIn(text);
  return isJsonObject(object) && object[field] === value;
}

async function readingOfGroups(redis: Redis, stream: string, ids: readonly string[]): Promise<Reading[]> {
  const groups =
    (await redis.exists(stream)) === 0 ? [] : ((await redis.xinfo('GROUPS', stream)) as string[][]);
  const readings = ids.map((): Reading => (groups.length === 0 ? 'ungrouped' : 'read'));
  for (const { name, 'last-delivered-id': delivered } of groups.map(fieldsOf)) {
    const pipeline = redis.pipeline();
    for (const id of ids) pipeline.xpending(stream, name!, id, id, 1);
    const replies = (await pipeline.exec()) ?? [];
    for (const [index, id] of ids.entries()) {
      const [error, pending] = replies[index]!;
      if (error) throw error;
      if ((pending as unknown[]).length > 0) readings[index] = 'pending';
      else if (compareEntryIds(id, delivered!) > 0 && readings[index] !== 'pending')
        readings[index] = 'unread';
    }
  }
  return readings;
}

interface EntriesRead {
  /** Absent where the stream ends before it. */
  last: string | undefined;
  entries: ReadEntry[];
}

/** Reads the next entries of a stream. */
export async function readEntries(
  redis: Redis,
  stream: string,
  after: string,
  userId: string,
  names: readonly string[],
): Promise<EntriesRead> {
  const args = [stream, after, JSON.stringify(userId), ...names];
  const [last, ...found] = (await redis.eval_ro(READ_ENTRIES, 1, ...args)) as [
    string | null,
    ...[id: string, isNamed: number, ...values: (string | null)[]][],
  ];
  const entries = found.map(([id, isNamed, ...values]) => ({
    id,
    isNamed: isNamed === 1,
    fields: Object.fromEntries(names.map((name, i) => [name, values[i] ?? undefined])),
  }));
  return { last: last ?? undefined, entries };
}

/**
 * KEYS: stream. ARGV: the entry after which to read, the user's id as JSON, names of fields. Entries are taken one by one,
 * since only Redis knows how large they are. Redis rejects a read behind the last possible id.
 *
 * @returns the last entry, or nothing when there are no more; then of each entry its id, 1 if the user's id stands in it,
 * and the values of these fields.
 */
const READ_ENTRIES = `
  local last, looked, bytes, result = ARGV[1], 0, 0, {false}
  while looked < ${STEP} and bytes < ${STEP_BYTES} do
    local entry = last ~= '${LAST_ENTRY_ID}' and redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1]
    if not entry then return result end
    last, looked = entry[1], looked + 1
    local fields, found = {}, {last, 0}
    for i = 1, #entry[2], 2 do
      local name, value = entry[2][i], entry[2][i + 1]
      fields[name] = value
      bytes = bytes + #name + #value
      if string.find(value, ARGV[2], 1, true) then found[2] = 1 end
    end
    for i = 3, #ARGV do
      local value = fields[ARGV[i]]
      found[i] = value and #value <= ${MAX_VALUE_BYTES} and value or false
    end
    result[#result + 1] = found
  end
  result[1] = last
  return result`;

// --- What `why` asks of each kind of work, and what it says ------------------------------------------------------------

/** Why a recipient got something, or did not. */
export type Cause =
  // Intents.
  | 'published'
  | 'not_on_this_channel'
  | SkipReason
  | 'cancelled_before_acceptance'
  | 'waiting_for_attempt'
  | 'replayed'
  | 'retrying'
  | 'overdue'
  | 'channel_paused'
  | 'producer_paused'
  | 'dead'
  | 'waiting_for_acceptance'
  | 'refused'
  | 'key_conflict'
  | 'duplicate'
  // Mobile pushes.
  | 'push_sent'
  | 'push_partly_sent'
  | 'push_failed'
  | 'push_without_device'
  | 'push_refused'
  | 'push_given_up'
  | 'push_waiting'
  // Account callbacks.
  | 'callback_told'
  | 'callback_waiting'
  | 'callback_retrying'
  | 'callback_given_up'
  | 'account_untracked'
  | 'account_behind'
  // Of no row.
  | 'forgotten'
  | 'never_seen';

/** One sentence about one delivery to a user. */
export interface Answer {
  kind: 'intent' | 'mobile-push' | 'account-callback';
  cause: Cause;
  /** When it became so; of what waits, since when. */
  at: Date;
  /** Of the notification, of the entry that was refused, or of the job. */
  id?: string;
  /** Notification type. */
  type?: string;
  channel?: string;
  sentence: string;
  /** Its workflow in the Web UI. */
  link?: string;
}

/** What a kind of work found; the parts of an Answer that it does not have are null or absent. */
export interface FoundCause extends Pick<Answer, 'cause' | 'at' | 'sentence'> {
  id?: string | null;
  type?: string | null;
  channel?: string;
  workflowId?: string;
}

/** What is asked of each kind of work. */
export interface Question {
  /** A user's id; of administrators, the address. */
  recipient: string;
  since: Date;
  /** Answers at most, the newest. */
  limit: number;
  /** Notification type. */
  type?: string;
}

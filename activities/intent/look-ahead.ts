/**
 * Urgent intents go before a backlog, and a backlog of one producer does not hold up the others. While the reader is busy
 * with what it has read, the entries behind its offset are looked at, and those of urgent types, and of other producers than
 * the one whose backlog it is, are begun at once. The offset does not move for that: what was begun ahead is read
 * again in its turn, and found to be begun.
 *
 * Of two intents with one key the earlier is decided first. So one is begun ahead only if no entry between the offset and
 * itself has its key: the hashes of their keys are remembered.
 */
import { URGENT_TYPES, isUrgentType } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { parseIntent } from '../../api/intent/entry.ts';
import { STREAM_START, compareEntryIds, later } from '../../api/stream-ids.ts';
import type { Look, LookOptions } from '../stream-read.ts';
import type { Progress } from './stream-position.ts';

/** A reader that is done by then has no backlog before it, ms. */
const PATIENCE_MS = 20;
/** A backlog that was there before the reader is looked at before it is read, for so long at most, ms. */
const FIRST_LOOK_MS = 1_000;
/** Between two looks at the end of the stream, ms. */
const LOOK_INTERVAL_MS = 50;
/** Entries of one look: Redis serves nobody else meanwhile, for some ten milliseconds. */
const ENTRIES_PER_LOOK = 1_000;
/**
 * When most of what a look finds is of other producers, and more than so many, it is a backlog itself: begun ahead, it would
 * crowd Temporal. It comes in its turn.
 */
const MOST_OF_OTHERS = 50;
/** Entries that are remembered: some ten megabytes. What lies behind them comes in its turn. */
const MOST_AHEAD = 100_000;
/** Intents that are begun ahead concurrently. */
const MOST_AT_ONCE = 20;

interface Ahead {
  lookAfter(id: string, options: LookOptions): Promise<Look>;
  /** The offset changes only within the work of `during`. */
  progress: Pick<Progress, 'offset' | 'readBefore' | 'ahead'>;
  /** Whether something with its key is under way that must end before. */
  mustWait(intent: Intent): boolean;
  /** The producer of the backlog; undefined when it is of several, which then get their turns from Temporal. */
  producerOfBacklog(): string | undefined;
  /** @returns the ids of those that nobody is to begin. */
  cancelledOf(intents: readonly Intent[]): Promise<ReadonlySet<string>>;
  /** @returns whether it was started now. */
  start(intent: Intent, isUrgent: boolean): Promise<boolean>;
  stop: AbortSignal;
}

/** Entries behind each other. */
interface Page {
  last: string;
  looked: number;
  keys: Set<string>;
}

export type LookAhead = ReturnType<typeof createLookAhead>;

/** For one reader. */
export function createLookAhead(ahead: Ahead) {
  const { lookAfter, progress, mustWait, producerOfBacklog, cancelledOf, start, stop } = ahead;
  /** Those that the offset has not passed. */
  const begun = new Map<string, Promise<boolean>>();
  const underWay = new Set<Promise<unknown>>();
  /** What lies behind the offset, without a gap. */
  let pages: Page[] = [];
  /** Whose they are not wanted as those of others. */
  let flooder: string | undefined;
  /** One at a time. Resolves with whether there is nothing more to look at for now. */
  let looking: Promise<boolean> | undefined;

  return {
    /** Looks at what is there: later there is other work, and between two looks it takes its time. */
    async begin(): Promise<void> {
      const endAt = performance.now() + FIRST_LOOK_MS;
      while (performance.now() < endAt && !stop.aborted && !(await lookOnce()));
    },

    /**
     * Looks ahead for as long as the reader's work takes.
     *
     * @throws what the work fails with. A look that fails does not matter: the next read says why.
     */
    async during<T>(work: Promise<T>): Promise<T> {
      const { offset: before } = progress;
      let isOver = false;
      const over = work.then(
        () => (isOver = true),
        () => (isOver = true),
      );
      for (let waitMs = PATIENCE_MS; ;) {
        await until(over, waitMs);
        if (isOver || stop.aborted) break;
        const isEnd = await Promise.race([lookOnce(), over]);
        waitMs = isEnd ? LOOK_INTERVAL_MS : 0;
      }
      const done = await work;
      if (compareEntryIds(progress.offset, before) < 0) beginAnew();
      return done;
    },

    /** @returns the start of an intent that was begun ahead, for whoever comes to it in its turn. */
    startOf: (notificationId: string): Promise<boolean> | undefined => begun.get(notificationId),

    /** Resolves when nothing is being begun any more. */
    async end(): Promise<void> {
      await Promise.allSettled(underWay);
    },
  };

  function lookOnce(): Promise<boolean> {
    return (looking ??= look()
      .catch(() => true)
      .finally(() => (looking = undefined)));
  }

  async function look(): Promise<boolean> {
    keepUp();
    const producer = producerOfBacklog();
    // What was looked at before may have some that are wanted now.
    if (producer !== undefined && producer !== flooder) pages = [];
    flooder = producer;
    const current = pages;
    if (current.reduce((sum, { looked }) => sum + looked, 0) >= MOST_AHEAD) return true;
    const { last, looked, keys, wanted } = await lookAfter(current.at(-1)?.last ?? progress.offset, {
      most: ENTRIES_PER_LOOK,
      ...{ typeField: 'notification_type', types: URGENT_TYPES, keyFields: ['producer', 'idempotency_key'] },
      otherThan: producer,
    });
    if (looked === 0) return true;
    const page = pageFor(current, looked);
    const parsed = wanted.map(({ entry: { id, fields, size } }) => parseIntent(id, fields, size));
    const intents = parsed.flatMap((one) => (one.ok ? [one.intent] : []));
    const cancelled = await cancelledOf(intents);
    const others = intents.filter(({ notificationType }) => !isUrgentType(notificationType)).length;
    const areMany = others > Math.max(MOST_OF_OTHERS, looked / 2);
    let remembered = 0;
    for (const [index, { entry, keysBefore }] of wanted.entries()) {
      for (; remembered < keysBefore; remembered += 1) page.keys.add(keys[remembered]!);
      if (current.some((before) => before.keys.has(keys[keysBefore]!))) continue;
      const one = parsed[index]!;
      if (!one.ok || cancelled.has(entry.id)) continue;
      if (!areMany || isUrgentType(one.intent.notificationType)) await beginAhead(one.intent);
    }
    for (const key of keys) page.keys.add(key);
    Object.assign(page, { last, looked: page.looked + looked });
    return false;
  }

  /** Forgets what the offset has passed. */
  function keepUp(): void {
    const { offset } = progress;
    const isPassed = (id: string) => compareEntryIds(id, offset) <= 0;
    const open = pages.findIndex(({ last }) => !isPassed(last));
    pages = open === -1 ? [] : pages.slice(open);
    for (const id of begun.keys()) if (isPassed(id)) begun.delete(id);
  }

  function beginAnew(): void {
    pages = [];
    begun.clear();
  }

  async function beginAhead(intent: Intent): Promise<void> {
    const { notificationId } = intent;
    // What was read before is looked for in the rows first, by whoever reads it again.
    const isNew = compareEntryIds(notificationId, later(progress.offset, progress.readBefore)) > 0;
    if (!isNew || begun.has(notificationId) || mustWait(intent)) return;
    while (underWay.size >= MOST_AT_ONCE) await Promise.race(underWay);
    if (stop.aborted) return;
    const started = start(intent, isUrgentType(intent.notificationType));
    progress.ahead += 1;
    begun.set(notificationId, started);
    // Whoever comes to it in its turn begins it once more.
    const settled = started.catch(() => begun.delete(notificationId)).finally(() => underWay.delete(settled));
    underWay.add(settled);
  }
}

/** The last page, while it is small: at the end of a stream a look finds a few entries. */
function pageFor(pages: Page[], looked: number): Page {
  const last = pages.at(-1);
  if (last && last.looked + looked <= ENTRIES_PER_LOOK) return last;
  const page: Page = { last: last?.last ?? STREAM_START, looked: 0, keys: new Set() };
  pages.push(page);
  return page;
}

/** Waits for something that does not fail, and at most so long, ms. */
function until(event: Promise<unknown>, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    void event.then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

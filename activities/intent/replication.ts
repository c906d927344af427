/**
 * Waits until replicas of Redis have what was handed off, before rows say so: a failover to one of them then loses nothing
 * that is settled. WAIT rather than WAITAOF: what a crash takes from the disk of a server that comes back itself is missed
 * and put back by the repair, while a sync of the disk for each wait would hold every hand-off for up to a second.
 *
 * All that is asked for while one wait is under way shares the next one. The connection is separate, since WAIT
 * blocks whatever comes behind it. It waits for its own writes only, so each wait follows a small one: replicas that have
 * that have everything from before it.
 */
import type { Redis } from 'ioredis';

export interface ReplicationSettings {
  /** 0: nothing is waited for. */
  minReplicas: number;
  timeoutMs: number;
}

/** What the memory must hold for the hand-off to have happened on the server that is asked. */
export interface Remembered {
  handOffKey: string;
  entryId: string;
}

/** @returns the keys of those hand-offs that enough replicas have; perhaps of others too. Never throws. */
export type ConfirmReplicated = (remembered: Remembered[]) => Promise<ReadonlySet<string>>;

interface Batch {
  remembered: Remembered[];
  /** Keys of those that enough replicas have. */
  confirmed: Promise<Set<string>>;
}

const MARK_KEY = 'notification:replication_mark';

/**
 * KEYS: hand-offs, mark. ARGV: entry ids. Returns the positions of those that this server does not remember: another one
 * may be the master by now.
 */
const MARK = `
  local missing = {}
  for i, id in ipairs(ARGV) do
    if redis.call('GET', KEYS[i]) ~= id then missing[#missing + 1] = i end
  end
  redis.call('SET', KEYS[#KEYS], '1')
  return missing`;

/** @param redis a connection for nothing else. */
export function createReplication(
  redis: Redis,
  { minReplicas, timeoutMs }: ReplicationSettings,
): ConfirmReplicated {
  let underWay: Promise<unknown> = Promise.resolve();
  let next: Batch | undefined;

  return confirm;

  async function confirm(remembered: Remembered[]): Promise<ReadonlySet<string>> {
    if (minReplicas === 0 || remembered.length === 0) {
      return new Set(remembered.map(({ handOffKey }) => handOffKey));
    }
    next ??= begin();
    next.remembered.push(...remembered);
    return next.confirmed;
  }

  function begin(): Batch {
    const batch: Batch = { remembered: [], confirmed: underWay.then(() => ask()) };
    underWay = batch.confirmed;
    return batch;
  }

  async function ask(): Promise<Set<string>> {
    const { remembered } = next!;
    next = undefined;
    const keys = remembered.map(({ handOffKey }) => handOffKey);
    const ids = remembered.map(({ entryId }) => entryId);
    const answers = await redis
      .pipeline()
      .eval(MARK, keys.length + 1, ...keys, MARK_KEY, ...ids)
      .wait(minReplicas, timeoutMs)
      .exec()
      .catch(() => null);
    const [[markError, missing] = [], [waitError, replicas] = []] = answers ?? [[new Error('no answer')]];
    if (markError || waitError || Number(replicas) < minReplicas) return new Set();
    const unknown = new Set((missing as number[]).map((position) => keys[position - 1]));
    return new Set(keys.filter((key) => !unknown.has(key)));
  }
}

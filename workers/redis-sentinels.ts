/** Hears from sentinels that another server is the master, also while the old one still answers. */
import { Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import type { Logger } from 'pino';
import { reasonOf } from '../activities/reason.ts';

/** Channel on which a sentinel announces a new master. */
const SWITCHES = '+switch-master';
/** Without a word from the system for as long, ms, it asks whether the other end is still there. */
const KEEP_ALIVE_MS = 10_000;
const LONGEST_RETRY_MS = 5_000;

export interface MasterSwitch {
  from: string;
  to: string;
}

interface Watch {
  /** Of one connection to each sentinel. */
  sentinels: readonly Pick<
    RedisOptions,
    'host' | 'port' | 'username' | 'password' | 'tls' | 'connectTimeout'
  >[];
  /** As the sentinels call it. */
  master: string;
  log: Logger;
  /** Each sentinel tells it. */
  onSwitch(change: MasterSwitch): void;
}

/**
 * Listens to all sentinels until it is stopped; one that is away is tried again and again.
 *
 * @returns what stops it.
 */
export function watchSentinels({ sentinels, master, log, onSwitch }: Watch): () => void {
  const listeners = sentinels.map((options) => {
    const listener = new Redis({
      ...options,
      keepAlive: KEEP_ALIVE_MS,
      // A sentinel that restarts, or whose password changes, is listened to again.
      retryStrategy: (attempt) => Math.min(100 * attempt, LONGEST_RETRY_MS),
      maxRetriesPerRequest: null,
      // What it would ask for is about a server's data.
      enableReadyCheck: false,
    });
    const sentinel = `${options.host}:${options.port}`;
    listener.on('error', (error: Error) =>
      log.debug({ sentinel, reason: reasonOf(error) }, 'a sentinel does not answer'),
    );
    listener.on('message', (_, message: string) => {
      const [name, fromHost, fromPort, toHost, toPort] = message.split(' ');
      if (name !== master) return;
      onSwitch({ from: `${fromHost}:${fromPort}`, to: `${toHost}:${toPort}` });
    });
    listener.subscribe(SWITCHES).catch((error: unknown) => {
      // Stopped, or its rights do not suffice; the next connection does not ask again.
      log.debug({ sentinel, reason: reasonOf(error) }, 'a sentinel is not listened to');
    });
    return listener;
  });
  return () => {
    for (const listener of listeners) listener.disconnect();
  };
}

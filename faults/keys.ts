/** Keys of encryption of a run: who has which, and how they are rotated. */
import { randomBytes } from 'node:crypto';
import { loadConfig } from '../config/load.ts';
import { sealingKeysOf } from '../config/subscription.ts';
import { connectDirectly } from './connections.ts';
import type { Servers } from './servers.ts';

const RENEW_LIMIT_MS = 120_000;
/** As long as Temporal may be put back or emptied meanwhile, ms: what was renewed is of before then. */
const RENEW_ATTEMPTS_MS = 3 * RENEW_LIMIT_MS;

export interface Keys {
  /** Of a process of the service that is started now. */
  ofService(): Record<string, string>;
  /** Of the run's own operator, who opens whatever there is. */
  ofOperator(): Record<string, string>;
  /** Their secret parts, which must be nowhere. */
  secrets(): string[];
  /** From now on, new ones come first. */
  rotate(): void;
  /** What stays, and what an older key has sealed, is sealed with the newest. @throws Error when some of it is not. */
  renew(servers: Servers): Promise<void>;
}

export function createKeys(isEncrypted: boolean): Keys {
  const purposes = ['payload', 'subscription'] as const;
  const made = Object.fromEntries(
    purposes.map((purpose) => [
      purpose,
      ['new', 'old'].map((age) => `${purpose}-${age}:${randomBytes(32).toString('base64')}`),
    ]),
  ) as Record<(typeof purposes)[number], string[]>;
  let isRotated = false;
  const envOf = (keysOf: (all: string[]) => string[]): Record<string, string> => ({
    PATH: '/usr/bin:/bin',
    NOTIFICATION_SUBSCRIPTION_KEYS: keysOf(made.subscription).join(),
    ...(isEncrypted ? { NOTIFICATION_PAYLOAD_KEYS: keysOf(made.payload).join() } : {}),
  });
  const newestFirst = () => envOf((all) => all);
  return {
    ofService: () => envOf((all) => (isRotated ? all : all.slice(1))),
    // Seals with the old one, which everybody has at any time.
    ofOperator: () => envOf((all) => all.toReversed()),
    secrets: () => Object.values(made).flatMap((all) => all.map((key) => key.split(':')[1]!)),
    rotate: () => void (isRotated = true),
    async renew(servers) {
      const config = loadConfig(newestFirst());
      const configured = {
        payload: config.values.NOTIFICATION_PAYLOAD_KEYS ?? [],
        subscription: sealingKeysOf(config),
      };
      for (const deadline = Date.now() + RENEW_ATTEMPTS_MS; ;) {
        const connections = connectDirectly(servers, newestFirst());
        try {
          const { waiting, unreadable } = await connections.operator.keys.renew(configured, {
            limitMs: RENEW_LIMIT_MS,
          });
          if (waiting.length + unreadable > 0)
            throw new Error(
              `${waiting.join()} did not go on in a new run; ${unreadable} values are unreadable`,
            );
          return;
        } catch (error) {
          // Other faults go on meanwhile.
          if (Date.now() > deadline) throw error;
        } finally {
          await connections.close();
        }
      }
    },
  };
}

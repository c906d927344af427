/**
 * The operator client: what an operator asks and does, as typed functions. The CLI is made of it, and other programs
 * may use it as well; they bring their own connections.
 *
 * ```ts
 * const operator = createOperator({ temporal, db, redis, namespace, intentsStream });
 * const { items } = await operator.deadLetters.list({ channel: 'email' });
 * ```
 *
 * Reads are bounded, newest first. Times are `Date`s. Errors are those of operator-errors.ts; what a connection throws
 * passes through.
 */
import type { Client } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { KeyBox } from '../api/key-box.ts';
import { bridgeOperations } from './intent/bridge.ts';
import { callbackOperations } from './account-callback/callbacks.ts';
import { cancelOperation } from './intent/cancel.ts';
import { channelOperations } from './intent/channels.ts';
import { deadLetterOperations } from './intent/dead-letters.ts';
import { malformedOperations } from './intent/malformed.ts';
import { mobileOperations } from './mobile-push/jobs.ts';
import { notificationOperations } from './intent/notifications.ts';
import { replayOperations } from './intent/replay.ts';
import { subscriptionOperations } from './subscription/subscriptions.ts';
import { symbolOperations } from './symbol-config/symbols.ts';
import { tokenOperations } from './subscription/tokens.ts';

export interface OperatorResources {
  temporal: Client;
  /** Sessions must run in the time zone UTC. */
  db: Pool;
  redis: Redis;
  namespace: string;
  /** Address of the Web UI; without it there are no links. */
  uiUrl?: string;
  intentsStream: string;
  /** Whose subscriptions and token; default `default`. */
  agentId?: string;
  /** Needed for tokens only. */
  keyBox?: KeyBox;
}

export type Operator = ReturnType<typeof createOperator>;

export function createOperator(resources: OperatorResources) {
  return {
    notifications: { ...notificationOperations(resources), ...cancelOperation(resources) },
    deadLetters: deadLetterOperations(resources),
    replays: replayOperations(resources),
    channels: channelOperations(resources),
    bridge: bridgeOperations(resources),
    malformed: malformedOperations(resources),
    mobile: mobileOperations(resources),
    symbols: symbolOperations(resources),
    callbacks: callbackOperations(resources),
    subscriptions: subscriptionOperations(resources),
    tokens: tokenOperations(resources),
  };
}

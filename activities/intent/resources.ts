/** What activities of intents work with: connections, and settings as workers/intent.ts reads them. Each names its part. */
import type { WorkflowClient } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Catalog, Channel, NotificationType } from '../../api/intent/catalog.ts';
import type { DispatchMode } from '../../workflows/intent/contract.ts';
import type { ConfirmReplicated } from './hand-off.ts';
import type { IntentMetrics } from './metrics.ts';
import type { UserService } from './user-service.ts';

export interface IntentResources {
  db: Pool;
  redis: Redis;
  confirmReplicated: ConfirmReplicated;
  workflows: WorkflowClient;
  userService: UserService;
  log: Logger;
  metrics: IntentMetrics;
  catalog: Catalog;
  intent: {
    /** Attempts that a channel may spend on a route. */
    budgets: Record<Channel, number>;
    /** How long at least an idempotency key stays reserved, ms. */
    idempotencyTtlMs: number;
    /** Normalised, unique addresses by notification type. */
    adminEmails: ReadonlyMap<NotificationType, readonly string[]>;
    /** Lookups that this process makes concurrently. */
    maxLookups: number;
    /** Attempts after which a recipient without a usable answer is served without e-mail. */
    unusableAfterAttempts: number;
  };
  route: {
    gatewayStream: string;
    /** Approximate length to which Redis trims the gateway stream. */
    gatewayMaxLen: number;
    mailStream: string;
    backoffMinMs: number;
    backoffMaxMs: number;
    leaseTtlMs: number;
  };
  bridge: {
    /** BLOCK of one read, ms. */
    blockMs: number;
    dispatch: DispatchMode;
  };
  retention: { recordRetentionMs: number };
}

/** What attempts to publish routes need. */
export type RouteResources = Pick<
  IntentResources,
  'db' | 'redis' | 'confirmReplicated' | 'log' | 'metrics' | 'catalog' | 'route'
>;

/**
 * A stand-in for a notification router (NTF): notification-rules.ts has what it does, router-desk.ts what can be read
 * and set from outside, and here:
 *
 * ```
 * POST /_token         {"tokenId", "status"}          sets the status of a token
 * POST /_subscription  {"subscriptionId", "status"}   sets the status of a subscription
 * POST /_cron          pushes to every token with a cron interval as if it had passed
 * ```
 */
import { assertPortFree } from '../../servers/ports.ts';
import { createBinaryCertificate } from './binary/certificates.ts';
import { startBinaryServer } from './binary/router-server.ts';
import { openRouterDataFile } from './data-file.ts';
import type { NotificationRules } from './notification-rules.ts';
import { createNotificationRules } from './notification-rules.ts';
import type { NotificationState } from './notification-state.ts';
import type { PushTarget } from './notification-pushes.ts';
import type { RouterStandIn } from './router-desk.ts';

export type NotificationRouterStandIn = RouterStandIn &
  Pick<
    NotificationRules,
    'tokens' | 'subscriptions' | 'setTokenStatus' | 'setSubscriptionStatus' | 'pushCron'
  >;

export interface NotificationRouterOptions extends PushTarget {
  /** Loopback port; default 0: a free one. */
  port?: number;
  /** Newest protocol version; below 3 no reasons of invalid tokens, below 2 no batches. */
  version?: number;
  /** Keeps certificate, tokens and subscriptions across restarts of the process. */
  dataFile?: string;
}

/** Starts the stand-in on 127.0.0.1. @throws Error when the port is taken. */
export async function startNotificationRouter(
  options: NotificationRouterOptions,
): Promise<NotificationRouterStandIn> {
  const { port = 0, version, dataFile, ...pushes } = options;
  if (port !== 0) await assertPortFree(port, 'stand-in notification router');
  const { certificate, state, save, flush } = await openRouterDataFile<NotificationState>(
    dataFile,
    createBinaryCertificate,
  );
  const rules = createNotificationRules({ pushes, state, save, flush });
  const { tokens, subscriptions, setTokenStatus, setSubscriptionStatus, pushCron } = rules;
  const server = await startBinaryServer({ protocol: 'ntf', certificate, port, version, rules });
  return Object.assign(server, { tokens, subscriptions, setTokenStatus, setSubscriptionStatus, pushCron });
}

/**
 * A stand-in for a messaging router (SMP): messaging-rules.ts has what it does, router-desk.ts what can be read and set
 * from outside, and here:
 *
 * ```
 * POST /_send     {"senderId", "body", "notify"?}   sends a message to a queue
 * ```
 */
import { assertPortFree } from '../../servers/ports.ts';
import { createBinaryCertificate } from './binary/certificates.ts';
import { startBinaryServer } from './binary/router-server.ts';
import { MESSAGE_SEALS } from './binary/seals.ts';
import { openRouterDataFile } from './data-file.ts';
import type { MessagingRules, StoredQueue } from './messaging-rules.ts';
import { createMessagingRules } from './messaging-rules.ts';
import type { RouterStandIn } from './router-desk.ts';

export type MessagingRouterStandIn = RouterStandIn & Pick<MessagingRules, 'queues' | 'subscribed' | 'send'>;

export interface MessagingRouterOptions {
  /** Loopback port; default 0: a free one. */
  port?: number;
  /** Newest protocol version. */
  version?: number;
  oldestVersion?: number;
  /** That a new queue asks for. */
  password?: string;
  /** Keeps certificate and queues across restarts of the process. */
  dataFile?: string;
}

/** Starts the stand-in on 127.0.0.1. @throws Error when the port is taken. */
export async function startMessagingRouter(
  options: MessagingRouterOptions = {},
): Promise<MessagingRouterStandIn> {
  const { port = 0, version, oldestVersion, password } = options;
  if (port !== 0) await assertPortFree(port, 'stand-in messaging router');
  const { certificate, state, save, flush } = await openRouterDataFile<StoredQueue[]>(
    options.dataFile,
    createBinaryCertificate,
  );
  const rules = createMessagingRules({
    seals: MESSAGE_SEALS,
    queues: state ?? [],
    save,
    flush,
    password,
  });
  const { openSession, queues, subscribed, send } = rules;
  const server = await startBinaryServer({
    protocol: 'smp',
    certificate,
    port,
    version,
    oldestVersion,
    rules,
    openSession,
  });
  return Object.assign(server, { queues, subscribed, send });
}

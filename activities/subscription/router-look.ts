/** Whether the routers of an agent answer this process, and how it got on with them so far. */
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import pLimit from 'p-limit';
import type { RouterState, RouterStates } from '../../workflows/subscription/contract.ts';
import { query } from '../postgres.ts';
import type { SubscriptionResources } from './batches.ts';
import { whileBeating } from './batches.ts';
import { errorText } from './events.ts';
import type { SessionFacts } from './router/binary/session.ts';
import type { MessagingRouters, NotificationRouters } from './router/binary/routers.ts';
import type { RouterAddress, RouterError, RouterResult } from './router/ports.ts';
import type { AddressRow } from './router-rows.ts';
import { addressOf } from './router-rows.ts';

/** Routers that are asked, at most, and of these at the same time. */
const MOST_ROUTERS = 200;
const ASKED_TOGETHER = 20;
/** One that is silent for so long is said to be, ms: all together fit into the time of a command. */
const LONGEST_WAIT_MS = 10_000;

const SILENT: RouterError = {
  source: 'BROKER',
  code: 'TIMEOUT',
  detail: `no answer to PING within ${LONGEST_WAIT_MS / 1_000} s`,
};

export function createRouterLook({ db, messagingRouter, notificationRouter }: SubscriptionResources) {
  const ports = { messaging: messagingRouter, notification: notificationRouter };

  return {
    async lookAtRouters(agentId: string): Promise<RouterStates> {
      const rows = await query<RouterRow>(db, LIST_ROUTERS, [agentId, MOST_ROUTERS + 1]);
      const atMost = pLimit(ASKED_TOGETHER);
      const routers = await whileBeating(() =>
        Promise.all(
          rows
            .slice(0, MOST_ROUTERS)
            .map((row) => atMost(() => lookAt(row.kind, ports[row.kind], addressOf(row)))),
        ),
      );
      return { process: `${process.pid}@${hostname()}`, routers, hasMore: rows.length > MOST_ROUTERS };
    },
  };
}

async function lookAt(
  kind: RouterState['kind'],
  port: MessagingRouters | NotificationRouters,
  address: RouterAddress,
): Promise<RouterState> {
  // Before it is asked, which opens a session if there is none, and may fail.
  const sessions = port.sessionsWith(address);
  const last = port.lastErrorOf(address);
  const heldSinceMs = Math.min(...sessions.map(({ heldSince }) => heldSince.getTime()));
  const state: RouterState = {
    ...{ kind, ...address, sessions: sessions.length },
    ...(sessions.length > 0 ? { heldSinceMs } : {}),
    ...(last ? { lastError: { error: errorText(last.error), atMs: last.at.getTime() } } : {}),
  };
  const connected = await inTime(port.ping(address));
  if (!connected.ok) return { ...state, error: errorText(connected.error) };
  const beforeMs = performance.now();
  const answered = await inTime(port.ping(address));
  if (!answered.ok) return { ...state, error: errorText(answered.error) };
  const roundTripMs = Math.ceil(performance.now() - beforeMs);
  const [facts] = port.sessionsWith(address);
  return { ...state, roundTripMs, ...(facts ? spokenIn(facts) : {}) };
}

const spokenIn = ({ host, version, routerVersions }: SessionFacts) => ({
  connectedHost: host,
  version,
  routerVersions,
});

async function inTime<T>(answer: Promise<RouterResult<T>>): Promise<RouterResult<T>> {
  const over = new AbortController();
  const late = delay(LONGEST_WAIT_MS, { ok: false, error: SILENT } as const, { signal: over.signal });
  late.catch(() => undefined);
  try {
    return await Promise.race([answer, late]);
  } finally {
    over.abort();
  }
}

interface RouterRow extends AddressRow {
  kind: RouterState['kind'];
}

const LIST_ROUTERS = {
  name: 'list_routers_of_agent',
  text: `
    SELECT 'messaging' AS kind, host, port, key_hash FROM subscriptions.smp_servers WHERE agent_id = $1
     UNION ALL
    SELECT 'notification', host, port, key_hash FROM subscriptions.ntf_servers WHERE agent_id = $1
     ORDER BY 1, 2, 3
     LIMIT $2`,
};

/**
 * 100,000 connections over 20 messaging routers, and what a router that takes requests and answers none costs the
 * connections of the others. The routers are stand-ins in the process of the benchmark.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inTransaction } from '../activities/postgres.ts';
import type { MessagingRouterStandIn } from '../dev/stand-ins/subscription/messaging-router.ts';
import { importNewQueues } from '../dev/stand-ins/subscription/queues.ts';
import type { Bench } from './environment.ts';
import type { Measurement } from './measurement.ts';
import { medianOf, until } from './rounds.ts';
import { quantile, ratios } from './statistics.ts';
import type { Installation } from './subscription.ts';
import { AGENT, LOOK_INTERVAL_MS, installSubscriptions } from './subscription.ts';

const CONNECTIONS = 100_000;
const ROUTERS = 20;
const USERS = 4;
/** Every other second one connection of each router is switched on, for longer than a router is waited for: 30 s. */
const [GROUPS, WARM_UP_GROUPS] = [30, 5];
const GROUP_INTERVAL_MS = 2_000;
/** Users each of whom waits for the silent router with one more connection: a batch. */
const CROWD = 150;
const MOST_SLOWDOWN = 1.5;

const PART = 'subscription';
const ROW = 'scale.connections';

export const scaleSubscription: Measurement = {
  name: ROW,
  meaning: `connections that are switched on beside ${CONNECTIONS} others, over ${ROUTERS} messaging routers`,
  isQuick: false,
  rows: [
    {
      name: `${ROW}.p99`,
      unit: '',
      target: { atMost: MOST_SLOWDOWN },
      meaning: `until subscribed, on the other ${ROUTERS - 1} while one router is silent, by that while all answer`,
    },
    { name: `${ROW}.p99.all-answer`, unit: 'ms', meaning: 'until subscribed, while all routers answer' },
    { name: `${ROW}.p99.one-silent`, unit: 'ms', meaning: 'until subscribed, while one router is silent' },
  ],
  run: measure,
};

/**
 * Connections that are switched on together: one of each router, in the order of the routers; or a crowd, all of the first
 * router.
 */
type Group = readonly string[];

/** Until subscribed, ms. */
type Times = Record<'p50' | 'p99', number>;

async function measure(bench: Bench) {
  const { longRounds } = bench.sizes;
  const installation = await installSubscriptions(bench, PART, { routers: ROUTERS });
  try {
    bench.report(`Filling the tables with ${CONNECTIONS} connections`);
    const { groups, crowds } = await fill(installation, {
      groups: WARM_UP_GROUPS + 2 * longRounds * GROUPS,
      crowds: longRounds,
    });
    const next = (count: number): Group[] => groups.splice(0, count);
    await switchOn(installation, next(WARM_UP_GROUPS));
    const found = { 'all-answer': [] as Times[], 'one-silent': [] as Times[] };
    for (let round = 1; round <= longRounds; round += 1) {
      for (const shape of ['all-answer', 'one-silent'] as const) {
        const crowd = shape === 'one-silent' ? crowds.shift() : undefined;
        const ms = await switchOn(installation, next(GROUPS), crowd);
        const times: Times = { p50: quantile(ms, 0.5), p99: quantile(ms, 0.99) };
        bench.report(
          `Round ${round} of ${longRounds}: ${shape} p50 ${Math.round(times.p50)} ms, p99 ${Math.round(times.p99)} ms`,
        );
        found[shape].push(times);
      }
    }
    const p99 = (shape: keyof typeof found) => found[shape].map((times) => times.p99);
    return [
      medianOf(`${ROW}.p99`, ratios(p99('one-silent'), p99('all-answer'))),
      { ...medianOf(`${ROW}.p99.all-answer`, p99('all-answer')), details: found['all-answer'] },
      { ...medianOf(`${ROW}.p99.one-silent`, p99('one-silent')), details: found['one-silent'] },
    ];
  } finally {
    await bench.stopService(PART);
  }
}

/**
 * Fills the tables: connections whose subscription is alive and checked at some time of the next three days, which is
 * how most of them stand at any time, and beside them some that are switched off. Only the latter ones have a queue on
 * their router.
 */
async function fill(
  { part, operator, routers }: Installation,
  counts: Record<'groups' | 'crowds', number>,
): Promise<Record<'groups' | 'crowds', Group[]>> {
  const { db } = part;
  for (const { address } of routers) {
    await db.query(INSERT_ROUTER, [AGENT, address.host, address.port, address.keyHash]);
  }
  const ports = routers.map(({ address }) => address.port);
  // A sweep that saw queues without records would have them subscribed.
  await inTransaction(db, async (client) => {
    await client.query(FILL_CONNECTIONS, [AGENT, CONNECTIONS]);
    await client.query(FILL_QUEUES, [AGENT, CONNECTIONS, ports]);
    await client.query(FILL_RECORDS, [AGENT, CONNECTIONS]);
  });
  /** Makes a connection that is switched off, with a queue on its router. */
  const prepare = async ({ address }: MessagingRouterStandIn, connId: string, userId: number) => {
    await importNewQueues(operator.subscriptions, [
      { connId, userId, server: address, enableNotifications: false },
    ]);
    return connId;
  };
  const groups = Array.from({ length: counts.groups }, (_, group) =>
    Promise.all(
      routers.map((router, index) => prepare(router, `off-${group}-${index}`, 1 + (group % USERS))),
    ),
  );
  const crowds = Array.from({ length: counts.crowds }, (_, crowd) =>
    Promise.all(
      Array.from({ length: CROWD }, (_, user) => prepare(routers[0]!, `crowd-${crowd}-${user}`, user)),
    ),
  );
  const prepared = { groups: await Promise.all(groups), crowds: await Promise.all(crowds) };
  await db.query('ANALYZE');
  return prepared;
}

/**
 * Switches groups on, one after the other, and waits until all are subscribed.
 *
 * @param crowd given: the first router answers nothing while the connections of the others are waited for, and these
 * connections of it wait from the beginning.
 * @returns how long it took for each connection of the other routers, ms, from when it was to be switched on.
 */
async function switchOn(
  { part: { db }, operator, routers: [first] }: Installation,
  groups: readonly Group[],
  crowd?: Group,
): Promise<number[]> {
  const subscribed = async (connIds: readonly string[]) =>
    (await db.query<{ conn_id: string; at_ms: number }>(LIST_SUBSCRIBED, [AGENT, connIds])).rows;
  const ofFirst = [...groups.map(([connId]) => connId!), ...(crowd ?? [])];
  const ofOthers = groups.flatMap(([, ...connIds]) => connIds);
  const askedAtMs = new Map<string, number>();
  if (crowd) {
    const before = first!.calls.length;
    first!.fail({ failure: { kind: 'silence' } });
    await operator.subscriptions.toggle(crowd, true);
    await until('the first router to be asked', LOOK_INTERVAL_MS, () => first!.calls.length > before);
  }
  const beganAtMs = Date.now();
  for (const [index, group] of groups.entries()) {
    // The wait of a late group counts from this moment too.
    const atMs = beganAtMs + index * GROUP_INTERVAL_MS;
    await sleep(Math.max(0, atMs - Date.now()));
    for (const connId of group) askedAtMs.set(connId, atMs);
    await operator.subscriptions.toggle(group, true);
  }
  const areAll = (connIds: readonly string[]) => async () =>
    (await subscribed(connIds)).length === connIds.length;
  await until('the connections of the other routers', LOOK_INTERVAL_MS, areAll(ofOthers));
  if (crowd) {
    const answered = await subscribed(ofFirst);
    if (answered.length > 0) throw new Error(`the silent router has answered ${answered.length} times`);
    first!.heal();
  }
  await until('those of the first router', LOOK_INTERVAL_MS, areAll(ofFirst));
  return (await subscribed(ofOthers)).map(({ conn_id, at_ms }) => at_ms - askedAtMs.get(conn_id)!);
}

const INSERT_ROUTER =
  'INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash) VALUES ($1, $2, $3, $4)';

const FILL_CONNECTIONS = `
  INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, enable_ntfs)
  SELECT $1, 'on-' || n, 1 + n % ${USERS}, true FROM generate_series(1, $2::int) AS n`;

/** The keys are as long as sealed keys; no process opens them. */
const FILL_QUEUES = `
  INSERT INTO subscriptions.rcv_queues
         (agent_id, conn_id, host, port, rcv_id, rcv_private_key, ntf_public_key, ntf_private_key,
          ntf_id, rcv_ntf_dh_secret)
  SELECT $1, 'on-' || n, '127.0.0.1', ($3::int[])[1 + n % ${ROUTERS}], 'recipient-' || n,
         sha512(('r' || n)::bytea), encode(sha256(n::text::bytea), 'base64'), sha512(('n' || n)::bytea),
         'notifier-' || n, sha512(('s' || n)::bytea)
    FROM generate_series(1, $2::int) AS n`;

/** Nothing is due while it is measured. */
const FILL_RECORDS = `
  INSERT INTO subscriptions.ntf_subscriptions
         (agent_id, conn_id, user_id, smp_host, smp_port, smp_ntf_id, ntf_host, ntf_port, ntf_sub_id, status,
          ntf_action, action_ts)
  SELECT $1, queue.conn_id, user_id, queue.host, queue.port, queue.ntf_id, token.host, token.port,
         'subscription-' || queue.conn_id, 'CREATED ACTIVE', 'C',
         clock_timestamp() + interval '2 hours' + random() * interval '70 hours'
    FROM subscriptions.rcv_queues AS queue
    JOIN subscriptions.connections USING (agent_id, conn_id)
    JOIN subscriptions.ntf_tokens AS token USING (agent_id)
   WHERE agent_id = $1
   LIMIT $2`;

/** A subscribed row waits for its first check; no process writes it before that. */
const LIST_SUBSCRIBED = `
  SELECT conn_id, extract(epoch FROM updated_at)::float8 * 1000 AS at_ms
    FROM subscriptions.ntf_subscriptions
   WHERE agent_id = $1 AND conn_id = ANY ($2::text[]) AND ntf_action = 'C'`;

/**
 * Subscriptions: in the end records, messaging routers and the notification router tell the same.
 * ledger/subscription.ts judges.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { routerAddressText } from '../api/subscription/router-address.ts';
import type { WantedQueue } from '../dev/stand-ins/subscription/queues.ts';
import { importNewQueues, makeQueues } from '../dev/stand-ins/subscription/queues.ts';
import { startRouters } from '../dev/stand-ins/subscription/routers.ts';
import type { ConnectionRow, RouterState } from './ledger/subscription.ts';
import { disagreements, judgeSubscriptions } from './ledger/subscription.ts';
import type { Verdict } from './ledger/verdict.ts';
import type { Arena, Work } from './work.ts';

const CONNECTIONS = 60;

type Wanted = WantedQueue & { connId: string };

export async function openSubscriptions(arena: Arena): Promise<Work> {
  const random = arena.random('subscription');
  const routers = await startRouters({
    port: 0,
    storeDir: path.join(arena.dataDir, 'routers'),
  });
  const servers = routers.notificationRouters.map((address) => routerAddressText(address, 'ntf'));
  const { subscriptions, tokens } = arena.operator;
  const account = {
    created: new Map<string, Wanted>(),
    deletionAsked: new Set<string>(),
    deletionTold: new Set<string>(),
  };
  const device = { provider: 'AT' as const, token: randomBytes(16).toString('hex') };

  return {
    name: 'subscription',
    env: {
      NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: servers.join(),
      NOTIFICATION_RECONCILIATION_INTERVAL: '1s',
      NOTIFICATION_SUBSCRIPTION_RETRY: '200ms,2s',
      NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10s',
    },
    planted: [{ what: 'device token of the agent', value: device.token }],
    prepare: activate,
    async load() {
      for await (const index of arena.spread(Math.min(CONNECTIONS, arena.intents))) {
        // Several concurrently, as programs do.
        void create({
          connId: `conn-${index}`,
          userId: 1 + (index % 2),
          server: random.oneOf(routers.messagingRouters),
        });
        const [chosen] = random.shuffled([...account.created.keys()]);
        if (chosen === undefined) continue;
        const isOn = random.chance(0.5);
        if (random.chance(0.2)) void arena.offer(() => subscriptions.toggle([chosen], isOn));
        if (random.chance(0.05)) void arena.offer(() => remove(chosen));
        if (random.chance(0.1)) {
          random.oneOf([...routers.messaging, routers.notification]).fail({
            failure: random.oneOf([
              { kind: 'reset', isExecuted: true },
              { kind: 'delay', ms: 500 },
              { kind: 'status', status: 503 },
            ] as const),
            times: random.between(1, 3),
          });
        }
      }
    },
    async settle() {
      for (const router of [...routers.messaging, routers.notification]) router.heal();
      if (arena.hasLost()) await repeatLost();
      // A command starts over what was given up, as the agent's program would after an error.
      for (const isWanted of [true, false]) {
        const ids = (await rows()).filter((row) => row.is_wanted === isWanted).map(({ conn_id }) => conn_id);
        if (ids.length > 0) await arena.persist('toggling', () => subscriptions.toggle(ids, isWanted));
      }
      await arena.until('records and routers to agree', async () => {
        const problems = disagreements(await rows(), routerState(), arena.hasLost());
        if (problems.length === 0) return true;
        throw new Error(`${problems.length}: ${problems.slice(0, 3).join('; ')}`);
      });
    },
    async verify(): Promise<Verdict> {
      const verdict = judgeSubscriptions(await rows(), routerState(), {
        ...account,
        created: new Set(account.created.keys()),
        hasForgotten: arena.hasLost(),
      });
      const all = [...routers.messaging, routers.notification];
      verdict.figures['commands to routers'] = all.reduce((sum, { calls }) => sum + calls.length, 0);
      return verdict;
    },
    stop: () => routers.stop(),
  };

  /** Registers the agent's device and verifies it. Each call is waited for: one that is given up is carried out anyway. */
  async function activate(): Promise<void> {
    await arena.until('the device to be registered and verified', async () => {
      if ((await tokens.register(device, 'INSTANT')) === 'ACTIVE') return true;
      const push = routers.pushSink.pushes.findLast(
        ({ token, kind }) => token === device.token && kind === 'verification',
      );
      const { nonce, verification: code } = push?.data ?? {};
      if (nonce === undefined || code === undefined) throw new Error('no verification was pushed');
      return (await tokens.verify(device, { nonce, code })) === 'ACTIVE';
    });
  }

  /** Of a queue that is made twice, because its router failed or the answer of the product was lost, one is imported. */
  async function create(wanted: Wanted): Promise<void> {
    const created = await arena.offer(() => importNewQueues(subscriptions, [wanted]));
    if (created) account.created.set(wanted.connId, wanted);
  }

  /** What PostgreSQL has forgotten the agent asks for again. */
  async function repeatLost(): Promise<void> {
    const known = new Set((await arena.persist('connections to be listed', rows)).map((row) => row.conn_id));
    for (const [connId, wanted] of [...account.created]) {
      if (known.has(connId) || account.deletionAsked.has(connId)) continue;
      const queues = await arena.persist('a queue to be made again', () => makeQueues([wanted]));
      await arena.persist('a queue to be imported again', () => subscriptions.import(queues));
    }
    for (const connId of account.deletionTold) {
      if (known.has(connId)) await arena.persist('a deletion', () => subscriptions.delete([connId]));
    }
  }

  async function remove(connId: string): Promise<void> {
    account.deletionAsked.add(connId);
    await subscriptions.delete([connId]);
    account.deletionTold.add(connId);
  }

  async function rows(): Promise<ConnectionRow[]> {
    const found = await arena.db.query<ConnectionRow>(
      `SELECT connection.conn_id, enable_ntfs IS NOT FALSE AS is_wanted, status, ntf_action, smp_ntf_id, ntf_sub_id
         FROM subscriptions.connections AS connection
         LEFT JOIN subscriptions.ntf_subscriptions USING (agent_id, conn_id)
        WHERE NOT is_deleted`,
    );
    return found.rows;
  }

  function routerState(): RouterState {
    return {
      notifierIds: routers.messaging.flatMap((router) =>
        router.queues().flatMap(({ notifier }) => (notifier ? [notifier.notifierId] : [])),
      ),
      subscriptions: routers.notification.subscriptions(),
    };
  }
}

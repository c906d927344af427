/** Subscriptions: in the end records, messaging routers and the notification router tell the same. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { startRouters } from '../dev/stand-ins/subscription/routers.ts';
import type { Arena, Verdict, Work } from './work.ts';
import { noVerdict } from './work.ts';

const CONNECTIONS = 60;
const LIVE = ['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'];

interface Row {
  conn_id: string;
  /** It is to have a subscription. */
  is_wanted: boolean;
  status: string | null;
  ntf_action: string | null;
  smp_ntf_id: string | null;
  ntf_sub_id: string | null;
}

export async function openSubscriptions(arena: Arena): Promise<Work> {
  const random = arena.random('subscription');
  const routers = await startRouters({ port: 0, storeDir: path.join(arena.dataDir, 'routers') });
  const servers = routers.notificationRouters.map(({ host, port, keyHash }) => `${host}:${port}#${keyHash}`);
  const { subscriptions, tokens } = arena.operator;
  const device = { provider: 'AT' as const, token: randomBytes(16).toString('hex') };

  return {
    name: 'subscription',
    env: {
      NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: servers.join(),
      NOTIFICATION_SUBSCRIPTION_SWEEP_INTERVAL: '5s',
      NOTIFICATION_SUBSCRIPTION_RETRY_FIRST: '200ms',
      NOTIFICATION_SUBSCRIPTION_RETRY_CONSTANT_FOR: '1s',
      NOTIFICATION_SUBSCRIPTION_RETRY_MAX: '2s',
      NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10s',
      NOTIFICATION_SUBSCRIPTION_CONNECT_TIMEOUT: '10s',
    },
    planted: [{ what: 'device token of the agent', value: device.token, mayBeInHistories: false }],
    prepare: activate,
    async load() {
      const made: string[] = [];
      for await (const index of arena.spread(Math.min(CONNECTIONS, arena.intents))) {
        const server = random.oneOf(routers.messagingRouters);
        // Several concurrently, as programs do.
        void arena
          .offer(() => subscriptions.create([{ userId: 1 + (index % 2), server }]))
          .then((created) => created?.forEach((one) => 'connId' in one && made.push(one.connId)));
        const [chosen] = random.shuffled(made);
        if (chosen === undefined) continue;
        const isOn = random.chance(0.5);
        if (random.chance(0.2)) void arena.offer(() => subscriptions.toggle([chosen], isOn));
        if (random.chance(0.05)) void arena.offer(() => subscriptions.delete([chosen]));
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
      // A command starts over what was given up, as the agent's program would after an error.
      for (const isWanted of [true, false]) {
        const ids = (await rows()).filter((row) => row.is_wanted === isWanted).map(({ conn_id }) => conn_id);
        if (ids.length > 0) await arena.persist('toggling', () => subscriptions.toggle(ids, isWanted));
      }
      await arena.until('records and routers to agree', async () => {
        const problems = disagreements(await rows());
        if (problems.length === 0) return true;
        throw new Error(`${problems.length}: ${problems.slice(0, 3).join('; ')}`);
      });
    },
    async verify(): Promise<Verdict> {
      const all = await rows();
      const calls = [...routers.messaging, routers.notification].flatMap((router) => router.calls);
      return {
        ...noVerdict(),
        wrong: disagreements(all),
        figures: {
          connections: all.length,
          subscriptions: all.filter(({ is_wanted }) => is_wanted).length,
          'commands to routers': calls.length,
        },
      };
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

  async function rows(): Promise<Row[]> {
    const found = await arena.db.query<Row>(
      `SELECT connection.conn_id, enable_ntfs IS NOT FALSE AS is_wanted, status, ntf_action, smp_ntf_id, ntf_sub_id
         FROM subscriptions.connections AS connection
         LEFT JOIN subscriptions.ntf_subscriptions USING (agent_id, conn_id)
        WHERE NOT is_deleted`,
    );
    return found.rows;
  }

  function disagreements(all: readonly Row[]): string[] {
    const problems: string[] = [];
    const notifiers = new Set(
      routers.messaging.flatMap((router) =>
        router.queues().flatMap(({ notifier }) => (notifier ? [notifier.notifierId] : [])),
      ),
    );
    const live = routers.notification.subscriptions().filter(({ status }) => LIVE.includes(status));
    const byId = new Map(live.map((subscription) => [subscription.subscriptionId, subscription]));
    const wanted = all.filter(({ is_wanted }) => is_wanted);
    for (const row of wanted) {
      const subscription = byId.get(row.ntf_sub_id ?? '');
      if (!row.status?.startsWith('CREATED ') || row.ntf_action !== 'C')
        problems.push(`${row.conn_id} is ${row.status}`);
      else if (!subscription) problems.push(`${row.conn_id} has no live subscription`);
      else if (subscription.notifierId !== row.smp_ntf_id)
        problems.push(`${row.conn_id} has another notifier there`);
      else if (!notifiers.has(row.smp_ntf_id)) problems.push(`${row.conn_id} has no notifier`);
    }
    const known = new Set(wanted.map(({ ntf_sub_id: id }) => id));
    for (const { subscriptionId } of live) {
      if (!known.has(subscriptionId)) problems.push(`subscription ${subscriptionId} is left over`);
    }
    return problems;
  }
}

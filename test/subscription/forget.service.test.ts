/** Subscriptions of a user who is forgotten: their notifiers go first, since only their keys can ask for that. */
import { eventually } from '../harness.ts';
import type { TokenAgent } from './token-agent.ts';
import { takeTokenAgent } from './token-agent.ts';

const LIMIT_MS = 240_000;
const [GONE, STAYS] = [7, 8];

let agent: TokenAgent;
beforeAll(async () => {
  agent = await takeTokenAgent();
  await agent.startWith();
}, LIMIT_MS);
afterAll(() => agent.release());

/** Rows of each table that are of this number, or of its connections. */
async function rowsOf(userId: number): Promise<Record<string, number>> {
  const { rows } = await agent.slot.db.query<Record<string, number>>(
    `SELECT (SELECT count(*)::int FROM subscriptions.connections WHERE user_id = $1) AS connections,
            (SELECT count(*)::int FROM subscriptions.ntf_subscriptions WHERE user_id = $1) AS subscriptions,
            (SELECT count(*)::int FROM subscriptions.servers_stats WHERE user_id = $1) AS counters,
            (SELECT count(*)::int FROM subscriptions.rcv_queues JOIN subscriptions.connections USING (agent_id, conn_id)
              WHERE user_id = $1) AS queues`,
    [userId],
  );
  return rows[0]!;
}

test(
  'I79 subscriptions go with their keys once their routers have deleted them, and those of others stay',
  async () => {
    await agent.activate(agent.tokensOf(), 'INSTANT');
    const { users, subscriptions } = agent.operator();
    const server = agent.routers.smp[0]!.address;
    const connIds = await agent.create([GONE, GONE, STAYS].map((userId) => ({ userId, server })));
    await subscriptions.wait(connIds, { limitMs: 60_000 });
    const before = await rowsOf(STAYS);
    expect(await rowsOf(GONE)).toMatchObject({ connections: 2, queues: 2, subscriptions: 2 });

    const subject = { userId: 'jane', subscriptionUser: GONE };
    expect((await users.preview(subject)).removed).toEqual([{ what: 'subscriptions.connections', count: 2 }]);
    const { removed } = await users.forget(subject, { requestedBy: 'nina' });
    expect(removed).toContainEqual({ what: 'subscriptions.connections', count: 2 });
    await eventually(
      'routers to have deleted all',
      async () => {
        const { connections, subscriptions: left } = await rowsOf(GONE);
        return connections === 0 && left === 0;
      },
      60_000,
    );
    // What workers counted meanwhile.
    const { remains } = await users.forget(subject, { requestedBy: 'nina' });
    expect(remains.filter(({ what }) => what.includes('sealed keys'))).toEqual([]);
    expect(await rowsOf(GONE)).toEqual({ connections: 0, subscriptions: 0, counters: 0, queues: 0 });
    expect(await rowsOf(STAYS)).toEqual(before);
  },
  LIMIT_MS,
);

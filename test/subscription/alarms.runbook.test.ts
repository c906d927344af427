/** Alarms about subscriptions, each with its fault, and its section of the runbook carried out. */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { generateAuthKeys } from '../../activities/subscription/router/keys.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';
import { recipientKeyContext } from '../../api/subscription/rows.ts';
import { createBinaryCertificate } from '../../dev/stand-ins/subscription/binary/certificates.ts';
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { scratchFolder } from '../scratch.ts';
import { eventually } from '../harness.ts';
import { drillGround } from '../runbook/drill.ts';
import { AGENT, KEY_BOX, agentOfTests } from './agent.ts';

const MINUTES = 16;

const dataFile = path.join(scratchFolder('alarms').dir, 'router.json');
/** One whose certificate is exchanged. */
let exchanged: MessagingRouterStandIn;

const ground = drillGround({
  env: () => ({
    ...agent.env,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(ntf().address, 'ntf'),
    NOTIFICATION_RECONCILIATION_INTERVAL: '600ms',
    // Drills wait for what a router's silence leads to.
    NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '2s',
  }),
});
const { drill } = ground;
const smp = () => agent.routers.smp[0]!;
const silent = () => agent.routers.smp[1]!;
const ntf = () => agent.routers.ntf[0]!;

const agent = agentOfTests({ slot: ground.slot, smp: 2 });
beforeAll(async () => {
  exchanged = await startMessagingRouter({ dataFile });
  await ground.start();
  await agent.activate(agent.tokensOf(), 'INSTANT');
}, 300_000);
afterAll(() => exchanged.stop());

const heal = async () => agent.routers.heal();
const create = (count: number, router = smp()) =>
  agent.create(Array.from({ length: count }, () => ({ userId: 1, server: router.address })));
const settle = async () => {
  await heal();
  await agent.active();
};

let givenUp: string[] = [];
drill({
  alarm: 'SubscriptionsGivenUp',
  fault: 'a router refused subscriptions for good',
  inject: async () => {
    ntf().fail({ failure: { kind: 'error', code: 'AUTH' }, subject: 'SNEW' });
    givenUp = await create(3);
  },
  // One that a shell does not take for an option.
  examples: () => ({ AbCdEfGhIjKlMnOp: givenUp.find((connId) => !connId.startsWith('-'))! }),
  says: { 'galaxy-notify subscriptions show': /AUTH|subscriptions retry/ },
  deeds: [{ words: 'fix the cause', act: heal, before: 'galaxy-notify subscriptions retry' }],
  cleanUp: settle,
});

describe('workers that die', () => {
  let sealed: Buffer | undefined;
  const keyBreaks = async () => {
    const [token] = await agent.rows<{ auth_private_key: Buffer }>('SELECT * FROM subscriptions.ntf_tokens');
    sealed = token!.auth_private_key;
    await agent.rows("UPDATE subscriptions.ntf_tokens SET auth_private_key = 'broken'");
    await create(1);
  };
  const keyIsMended = async () => {
    if (sealed) await agent.rows('UPDATE subscriptions.ntf_tokens SET auth_private_key = $1', [sealed]);
    sealed = undefined;
  };

  drill({
    alarm: 'SubscriptionWorkersDie',
    fault: 'the key of a token does not open',
    inject: keyBreaks,
    deeds: [{ words: 'fix what they name', act: keyIsMended, before: 'temporal schedule trigger' }],
    cleanUp: keyIsMended,
  });

  drill({
    alarm: 'SubscriptionCriticalErrors',
    fault: 'the key of a token does not open',
    prepare: () => agent.active(),
    inject: keyBreaks,
    deeds: [{ words: 'fix what it names', act: keyIsMended, before: 'temporal schedule trigger' }],
    cleanUp: async () => {
      await keyIsMended();
      await settle();
    },
  });
});

drill({
  alarm: 'SubscriptionRouterSilent',
  fault: 'a router has not answered for longer than a quarter of an hour',
  inject: async () => {
    smp().fail({ failure: { kind: 'silence' }, subject: 'NKEY' });
    await create(1);
    await eventually('work that waits', async () => {
      const { rowCount } = await ground.slot.db.query(
        `UPDATE subscriptions.ntf_subscriptions SET action_ts = action_ts - $1 * interval '1 minute'
          WHERE smp_action IS NOT NULL`,
        [MINUTES],
      );
      return (rowCount ?? 0) > 0;
    });
    await agent.rows(
      `UPDATE subscriptions.servers_stats SET updated_at = updated_at - $1 * interval '1 minute'`,
      [MINUTES],
    );
  },
  says: { 'temporal workflow list': /subscriptionWorker/ },
  deeds: [{ words: 'fix it', act: heal }],
  cleanUp: settle,
});

let onExchanged: string[] = [];
drill({
  alarm: 'SubscriptionWorkStuck',
  fault: 'the certificate of a router was exchanged',
  prepare: async () => {
    onExchanged = await agent.createActive(1, exchanged.address);
  },
  inject: async () => {
    const { port } = exchanged.address;
    await exchanged.stop();
    const kept = JSON.parse(readFileSync(dataFile, 'utf8')) as object;
    writeFileSync(dataFile, JSON.stringify({ ...kept, certificate: await createBinaryCertificate() }));
    exchanged = await startMessagingRouter({ dataFile, port });
    await agent.rows('DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = ANY ($1)', [onExchanged]);
    await agent.command(onExchanged);
  },
  examples: () => ({
    'smp://<fingerprint>@smp.example.com': routerAddressText(exchanged.address, 'smp'),
    'ntf://<fingerprint>@ntf.example.com': routerAddressText(ntf().address, 'ntf'),
  }),
  // The notification router is trusted already.
  codes: { 'galaxy-notify subscriptions trust': [0, 3] },
  cleanUp: settle,
});

/** Deleted connections, whose notifiers the router that is silent has. */
async function insertDeleted(count: number): Promise<void> {
  const { host, port, keyHash } = silent().address;
  await agent.rows(
    'INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING',
    [AGENT, host, port, keyHash],
  );
  const ids = Array.from({ length: count }, () => randomBytes(24).toString('base64url'));
  await agent.rows(
    `INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, is_deleted)
     SELECT $1, id, 1, true FROM unnest($2::text[]) AS id`,
    [AGENT, ids],
  );
  const keys = ids.map((id) => KEY_BOX.seal(generateAuthKeys().privateKey, recipientKeyContext(AGENT, id)));
  await agent.rows(
    `INSERT INTO subscriptions.rcv_queues (agent_id, conn_id, host, port, rcv_id, rcv_private_key)
     SELECT $1, id, $2, $3, id, key FROM unnest($4::text[], $5::bytea[]) AS queue (id, key)`,
    [AGENT, host, port, ids, keys],
  );
  await agent.rows(
    `INSERT INTO subscriptions.ntf_subscriptions
            (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, smp_action, action_ts)
     SELECT $1, id, 1, $2, $3, $4, $5, 'KEY', 'D', now() FROM unnest($6::text[]) AS id`,
    [AGENT, host, port, ntf().address.host, ntf().address.port, ids],
  );
}

drill({
  alarm: 'SubscriptionBacklogGrows',
  fault: 'a router does not answer, and more and more is to be deleted on it',
  inject: async () => {
    silent().fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
    for (let part = 0; part < 6; part += 1) await insertDeleted(200);
  },
  deeds: [{ words: 'fix the router', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'SubscriptionTokenDeletionsWait',
  fault: 'a notification router does not answer',
  inject: async () => {
    ntf().fail({ failure: { kind: 'silence' }, subject: 'TDEL' });
    const tokenIds = Array.from({ length: 101 }, (_, index) => `token-${index}`);
    await agent.insertDeletions(tokenIds, ntf().address);
  },
  deeds: [{ words: 'fix the router', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'SubscriptionsUnreadable',
  fault: 'a process started without the key that sealed rows',
  inject: async () => {
    silent().fail({ failure: { kind: 'silence' }, subject: 'NKEY' });
    await create(1, silent());
    await ground.killAll();
    silent().heal();
    await ground.start({ NOTIFICATION_SUBSCRIPTION_KEYS: `other:${randomBytes(32).toString('base64')}` });
  },
  deeds: [
    {
      words: 'put the key back behind the first one and start the processes',
      before: 'galaxy-notify subscriptions retry',
      act: async () => {
        await ground.killAll();
        await ground.start();
      },
    },
  ],
});

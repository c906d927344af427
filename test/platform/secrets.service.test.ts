/** Secrets that change while the service runs. */
import { randomBytes } from 'node:crypto';
import { sealingKeyOf } from '../../api/key-box.ts';
import { freePort } from '../../dev/servers/ports.ts';
import { startFcm } from '../../dev/stand-ins/mobile-push/fcm.ts';
import type { Slot } from '../harness.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { QUICK as QUICK_PUSHES, mobileOfTests } from '../mobile-push/jobs.ts';
import { scratchFolder } from '../scratch.ts';
import { QUICK as QUICK_SUBSCRIPTIONS, agentOfTests } from '../subscription/agent.ts';

const { write: fileOf } = scratchFolder('secrets');
const agent = agentOfTests({ smp: 0, ntf: 1 });
const slot = slotOfTests();
const mobile = mobileOfTests(slot);

const said = ({ logs }: Slot, msg: string) =>
  eventually(msg, async () => logs.find((line) => line.msg.startsWith(msg)));

test('I60 security-19 keys of subscriptions are taken from their file while the service runs', async () => {
  const given = QUICK_SUBSCRIPTIONS['NOTIFICATION_SUBSCRIPTION_KEYS']!;
  const file = fileOf('subscription-keys', given);
  await agent.start({ NOTIFICATION_SUBSCRIPTION_KEYS: '', NOTIFICATION_SUBSCRIPTION_KEYS_FILE: file });
  const sealedBy = async (agentId: string) => {
    const sql = 'SELECT auth_private_key AS sealed FROM subscriptions.ntf_tokens WHERE agent_id = $1';
    return sealingKeyOf((await agent.rows<{ sealed: Buffer }>(sql, [agentId]))[0]!.sealed);
  };
  const [one, other] = [agent.tokensOf('one'), agent.tokensOf('other')];
  await one.register(one.device, 'PERIODIC');
  expect(await sealedBy('one')).toBe('test');

  fileOf('subscription-keys', `new:${randomBytes(32).toString('base64')},${given}`);
  await said(agent.slot, 'encryption of subscriptions uses the new values');
  await other.register(other.device, 'PERIODIC');
  expect(await sealedBy('other')).toBe('new');
  // The old one still opens.
  expect(await one.verify(one.device, await agent.verification(one.device))).toBe('ACTIVE');
});

test('I60 security-19 the authority of FCM is taken from its file while the service runs', async () => {
  const before = await startFcm({ port: await freePort() });
  await slot.startService(
    {
      ...QUICK_PUSHES,
      NOTIFICATION_FCM_ENDPOINT: before.url,
      NOTIFICATION_HTTP_CA_FILE: fileOf('fcm.pem', before.caPem),
      NOTIFICATION_MOBILE_SEND_ATTEMPTS: '1000',
    },
    { fcm: { endpoint: before.url, caPem: before.caPem } },
  );
  const { userId } = await mobile.userWith('phone');
  expect(await mobile.settled(await mobile.publishTo(userId))).toMatchObject({ status: 'sent' });

  await before.stop();
  const after = await startFcm({ port: Number(new URL(before.url).port) });
  const second = await mobile.publishTo(userId);
  fileOf('fcm.pem', after.caPem);
  await said(slot, 'FCM uses the new values');
  expect(await mobile.settled(second)).toMatchObject({ status: 'sent' });
  expect(after.requests.filter(({ isAccepted }) => isAccepted)).toHaveLength(1);
  await after.stop();
});

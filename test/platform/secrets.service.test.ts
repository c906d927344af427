/** Keys that are missing, and secrets that change while the service runs. */
import { randomBytes } from 'node:crypto';
import type { KeyBoxKey } from '../../api/key-box.ts';
import { sealingKeyOf } from '../../api/key-box.ts';
import { freePort } from '../../dev/servers/ports.ts';
import { startFcm } from '../../dev/stand-ins/mobile-push/fcm.ts';
import type { Slot } from '../harness.ts';
import { eventually, slotOfEachTest, takeSlot } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { QUICK as QUICK_PUSHES, withMobilePush } from '../mobile-push/jobs.ts';
import { scratchFolder } from '../scratch.ts';
import { delivered } from '../service-process.ts';
import { QUICK as QUICK_SUBSCRIPTIONS } from '../subscription/agent.ts';
import { takeSubscriptionAgent } from '../subscription/agent.ts';

const newKey = (id: string): KeyBoxKey => ({ id, key: randomBytes(32) });
const [OLD, NEW] = [newKey('old'), newKey('new')];
const written = (...keys: KeyBoxKey[]) =>
  keys.map(({ id, key }) => `${id}:${key.toString('base64')}`).join(',');
const RENEWED_MS = 30_000;

const { write: fileOf } = scratchFolder('secrets');

const said = ({ logs }: Slot, msg: string) =>
  eventually(msg, async () => logs.find((line) => line.msg.startsWith(msg)), RENEWED_MS);

describe('keys of payloads', () => {
  const slot = slotOfEachTest();
  const withKeys = (...keys: KeyBoxKey[]) =>
    slot.startService({
      NOTIFICATION_PAYLOAD_KEYS: written(...keys),
      NOTIFICATION_PAYLOAD_PLAIN: 'accept',
    });

  test('I62 security-2 a key that is missing is named with the workflow that needs it, by the log', async () => {
    let service = await withKeys(OLD);
    const first = await publishTurn(slot.redis, 'first');
    await delivered(slot, first);
    await service.stop();

    service = await withKeys(NEW);
    const second = await publishTurn(slot.redis, 'second');
    const line = await said(slot, 'sealed with a key that is not configured');
    expect(line).toMatchObject({ level: 'error', purpose: 'payload', key_id: 'old' });
    // Which one of those that go on depends on when the first process ended.
    const handleOf = (workflowId: string) => slot.client.workflow.getHandle(workflowId);
    await handleOf(line['workflow_id'] as string).describe();
    await service.stop();
    expect(slot.logs.filter(({ key_id }) => key_id === 'old')).toHaveLength(1);
    // What the runbook says.
    await withKeys(NEW, OLD);
    await delivered(slot, first, second);
  });
});

test('I60 security-19 keys of subscriptions are taken from their file while the service runs', async () => {
  const agent = await takeSubscriptionAgent({ smp: 0, ntf: 1 });
  const { slot } = agent;
  try {
    const given = QUICK_SUBSCRIPTIONS['NOTIFICATION_SUBSCRIPTION_KEYS']!;
    const file = fileOf('subscription-keys', given);
    await agent.start({
      NOTIFICATION_SUBSCRIPTION_KEYS: '',
      NOTIFICATION_SUBSCRIPTION_KEYS_FILE: file,
    });
    const sealedBy = async (agentId: string) => {
      const { rows } = await slot.db.query<{ sealed: Buffer }>(
        'SELECT auth_private_key AS sealed FROM subscriptions.ntf_tokens WHERE agent_id = $1',
        [agentId],
      );
      return sealingKeyOf(rows[0]!.sealed);
    };
    const [one, other] = [agent.tokensOf('one'), agent.tokensOf('other')];
    await one.register(one.device, 'PERIODIC');
    expect(await sealedBy('one')).toBe('test');

    fileOf('subscription-keys', `${written(NEW)},${given}`);
    await said(slot, 'encryption of subscriptions uses the new values');
    await other.register(other.device, 'PERIODIC');
    expect(await sealedBy('other')).toBe('new');
    // The old one still opens.
    const status = await one.verify(one.device, await agent.verification(one.device));
    expect(status).toBe('ACTIVE');
  } finally {
    await agent.release();
  }
});

test('I60 security-19 the authority of FCM is taken from its file while the service runs', async () => {
  const slot = await takeSlot();
  const before = await startFcm({ port: await freePort() });
  const mobile = await withMobilePush(slot);
  const file = fileOf('fcm.pem', before.caPem);
  await slot.startService(
    {
      ...QUICK_PUSHES,
      NOTIFICATION_FCM_ENDPOINT: before.url,
      NOTIFICATION_HTTP_CA_FILE: file,
      NOTIFICATION_MOBILE_SEND_ATTEMPTS: '1000',
    },
    { fcm: { endpoint: before.url, caPem: before.caPem } },
  );
  const { userId } = await mobile.userWith('phone');
  const first = await mobile.publishTo(userId);
  expect(await mobile.settled(first)).toMatchObject({ status: 'sent' });

  await before.stop();
  const after = await startFcm({ port: Number(new URL(before.url).port) });
  try {
    const second = await mobile.publishTo(userId);
    fileOf('fcm.pem', after.caPem);
    await said(slot, 'FCM uses the new values');
    expect(await mobile.settled(second)).toMatchObject({ status: 'sent' });
    expect(after.requests.filter(({ isAccepted }) => isAccepted)).toHaveLength(1);
  } finally {
    await after.stop();
    await slot.release();
  }
});

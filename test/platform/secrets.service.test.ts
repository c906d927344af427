/** Keys that are missing or worn, certificates that expire, and what processes and `doctor` say about them. */
import { randomBytes } from 'node:crypto';
import type { KeyBoxKey } from '../../api/key-box.ts';
import { sealingKeyOf } from '../../api/key-box.ts';
import { loadCodecConfig } from '../../config/load.ts';
import { freePort } from '../../dev/servers/ports.ts';
import { startFcm } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { startCodecProcess } from '../../workers/codec-server.ts';
import { createLogger } from '../../workers/logger.ts';
import { cliFor } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, slotOfEachTest, takeSlot } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { QUICK as QUICK_PUSHES, withMobilePush } from '../mobile-push/jobs.ts';
import { scratchFolder } from '../scratch.ts';
import { delivered } from '../service-process.ts';
import { QUICK as QUICK_SUBSCRIPTIONS } from '../subscription/agent.ts';
import { takeTokenAgent } from '../subscription/token-agent.ts';

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

  test('I62 security-2 a key that is missing is named with the workflow that needs it, by log and doctor', async () => {
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
    // It names the one that was met last, the log the first.
    const finding = (await cliFor(slot).findings())['processes: keys'];
    expect(finding).toMatchObject({ status: 'error' });
    const [, needing] = /payload old, for ([^\s,;]+)/.exec(finding!.detail)!;
    await handleOf(needing!).describe();

    // What the runbook says.
    await withKeys(NEW, OLD);
    await delivered(slot, first, second);
  });

  test('I62 security-17 seals with a key itself are counted, over all processes', async () => {
    const { cli, json } = cliFor(slot);
    const token = randomBytes(24).toString('hex');
    const plain = {
      metadata: { encoding: Buffer.from('json/plain').toString('base64') },
      data: Buffer.from('1').toString('base64'),
    };
    /** The codec server seals without knowing the workflow; a payload of a workflow has its own key. */
    const sealWith = async (count: number, ...keys: KeyBoxKey[]) => {
      // Its open workflows make the key one that `keys status` lists.
      const service = await withKeys(...keys);
      const config = loadCodecConfig({
        NOTIFICATION_POSTGRES_PRIMARY_DSN: slot.endpoints.postgresDsn,
        NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
        NOTIFICATION_PAYLOAD_KEYS: written(...keys),
        NOTIFICATION_CODEC_HTTP_ADDR: '127.0.0.1:0',
        NOTIFICATION_CODEC_TOKEN: token,
        NOTIFICATION_CODEC_ENCODE: 'true',
      });
      const codecServer = await startCodecProcess(config, createLogger('fatal'));
      const answer = await fetch(`http://127.0.0.1:${codecServer.port}/encode`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}` },
        body: JSON.stringify({ payloads: Array.from({ length: count }, () => plain) }),
      });
      expect(answer.status).toBe(200);
      await codecServer.stop();
      await service.stop();
    };
    // The list of open workflows lags behind.
    const sealsOfOld = () =>
      eventually('an open workflow that the key has sealed', async () => {
        const { value } = await json<{ payload: { key: string; seals: number }[] }>(['keys', 'status']);
        return value.payload.find(({ key }) => key === 'old')?.seals;
      });
    await sealWith(7, OLD);
    expect(await sealsOfOld()).toBe(7);
    await sealWith(8, OLD);
    expect(await sealsOfOld()).toBe(15);
    await slot.db.query("UPDATE notification.key_seals SET seals = 3e9 WHERE key_id = 'old'");
    expect((await cli(['doctor'])).stdout).toMatch(
      /keys: seals +warn +payload old has sealed 3000000000 times/,
    );

    // What the runbook says.
    await sealWith(1, NEW, OLD);
    expect((await cli(['doctor', '-v'])).stdout).toMatch(/keys: seals +ok/);
  });
});

test('I60 security-19 keys of subscriptions are taken from their file while the service runs', async () => {
  const agent = await takeTokenAgent({ smp: 0, ntf: 1 });
  const { slot } = agent;
  try {
    const given = QUICK_SUBSCRIPTIONS['NOTIFICATION_SUBSCRIPTION_KEYS']!;
    const file = fileOf('subscription-keys', given);
    await agent.startWith(undefined, {
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

/** Encryption of values in rows (api/key-box.ts), and of what Temporal keeps (api/payload-codec.ts). */
import { randomBytes } from 'node:crypto';
import { defaultPayloadConverter } from '@temporalio/common';
import proto from '@temporalio/proto';
import type { KeyBoxKey } from '../../api/key-box.ts';
import { KeyBoxError, createKeyBox } from '../../api/key-box.ts';
import { createPayloadCodec, payloadHeadOf, sealingKeysIn } from '../../api/payload-codec.ts';
import vectors from '../../api/payload-vectors.json' with { type: 'json' };
import { ROLE_NAMES, loadConfig, needsOf } from '../../config/load.ts';

const PayloadMessage = proto.temporal.api.common.v1.Payload;
const keyNamed = (id: string): KeyBoxKey => ({ id, key: randomBytes(32) });
const [OLD, NEW] = [keyNamed('2025'), keyNamed('2026')];

const HERE = { type: 'workflow' as const, namespace: 'notify', workflowId: 'notification/1-0' };

const payloadOf = (value: unknown) => defaultPayloadConverter.toPayload(value);
const valueOf = (payload: Parameters<typeof defaultPayloadConverter.fromPayload>[0]) =>
  defaultPayloadConverter.fromPayload<unknown>(payload);

describe('the key box', () => {
  const CONTEXT = 'ntf_tokens.dh_secret:default';
  const SECRET = Buffer.from('a secret of thirty-two bytes, ok');
  const box = createKeyBox([NEW, OLD]);

  test('N14 a value is sealed and opened again, however long it is', () => {
    for (const plain of [SECRET, Buffer.alloc(0), randomBytes(100_000)]) {
      const sealed = box.seal(plain, CONTEXT);
      expect(sealed.length).toBe(2 + NEW.id.length + 32 + 16 + plain.length);
      if (plain.length > 0) expect(sealed.includes(plain)).toBe(false);
      expect(box.open(sealed, CONTEXT)).toEqual(plain);
    }
  });

  test('N14 I62 security-17 the same value is sealed with another key and nonce each time', () => {
    const sealed = Array.from({ length: 50 }, () => box.seal(SECRET, CONTEXT).toString('hex'));
    expect(new Set(sealed).size).toBe(50);
  });

  test('N14 rotation: the first key seals, those behind it still open, one taken out does not', () => {
    const after = box.seal(SECRET, CONTEXT);
    expect(box.open(createKeyBox([OLD]).seal(SECRET, CONTEXT), CONTEXT)).toEqual(SECRET);
    expect(createKeyBox([NEW]).open(after, CONTEXT)).toEqual(SECRET);
    expect(() => createKeyBox([OLD]).open(after, CONTEXT)).toThrow(
      'ntf_tokens.dh_secret:default is sealed with the key 2026, which is not configured',
    );
  });

  test('N14 a value opens only where it belongs, and with the key that sealed it', () => {
    const sealed = box.seal(SECRET, CONTEXT);
    expect(() => box.open(sealed, 'ntf_tokens.dh_secret:other')).toThrow('does not open');
    const ofTheSameId = createKeyBox([keyNamed(NEW.id)]);
    expect(() => ofTheSameId.open(sealed, CONTEXT)).toThrow('does not open with the key 2026');
  });

  test('N14 what was never sealed is named by its place', () => {
    for (const never of [SECRET, ...[0, 1, 2, 6, 20, 50].map((length) => Buffer.alloc(length, 1))])
      expect(() => box.open(never, CONTEXT)).toThrow(
        new KeyBoxError('ntf_tokens.dh_secret:default holds no sealed value'),
      );
  });

  const SHORT = Buffer.from('too short a key');
  test.each<[problem: string, keys: KeyBoxKey[]]>([
    ['there is no key', []],
    ['the key a must have 32 bytes and has 15', [{ id: 'a', key: SHORT }]],
    ['there are two keys with the id 2026', [NEW, { ...OLD, id: NEW.id }]],
    ['the id of a key must be 1 to 32 of A-Z a-z 0-9 . _ -', [{ ...NEW, id: '' }]],
    ['the id of a key must be 1 to 32 of A-Z a-z 0-9 . _ -', [{ ...NEW, id: `${SHORT.toString()}==` }]],
  ])('N14 unusable keys are refused, and no error holds a key: %s', (problem, keys) => {
    expect(() => createKeyBox(keys)).toThrow(new KeyBoxError(problem));
  });
});

describe('the codec', () => {
  const codec = createPayloadCodec([NEW, OLD]);

  test('I40 what was changed is refused, wherever it was', async () => {
    const [encrypted] = await codec.encode([payloadOf('plain')], HERE);
    const whole = Buffer.from(encrypted!.data!);
    for (let at = 0; at < whole.length; at++) {
      const data = Buffer.from(whole);
      data[at]! ^= 1;
      await expect(codec.decode([{ ...encrypted!, data }], HERE)).rejects.toMatchObject({
        name: expect.stringMatching(/^(KeyBoxError|UnknownKeyError)$/) as unknown,
      });
      await expect(codec.decode([{ ...encrypted!, data: whole.subarray(0, at) }], HERE)).rejects.toThrow();
    }
  });

  test('I40 security-15 a payload says nothing, and opens in its workflow alone, in every run, and for who cannot know it', async () => {
    const encrypted = await codec.encode([payloadOf('bound')], HERE);
    expect(Buffer.from(encrypted[0]!.data!).toString('latin1')).not.toMatch(/bound|json/);
    const activity = { ...HERE, type: 'activity' as const, activityId: '1', isLocal: false };
    for (const context of [HERE, activity, undefined]) {
      expect(valueOf((await codec.decode(encrypted, context))[0]!)).toBe('bound');
    }
    const elsewhere = [
      { ...HERE, workflowId: 'notification/1-1' },
      { ...HERE, namespace: 'other' },
      { ...activity, workflowId: 'notification/1-1' },
    ];
    for (const context of elsewhere) {
      await expect(codec.decode(encrypted, context)).rejects.toThrow('sealed for another workflow');
    }
    expect(payloadHeadOf(encrypted[0]!)).toEqual({
      keyId: '2026',
      owner: { namespace: 'notify', workflowId: 'notification/1-0' },
    });
  });

  test('security-15 all runs of a schedule are one owner', async () => {
    const schedule = { ...HERE, workflowId: 'intent-retention' };
    const runs = ['2026-11-24T16:00:00Z', '2026-11-24T17:00:00Z'].map((at) => ({
      ...HERE,
      workflowId: `intent-retention-${at}`,
    }));
    const encrypted = await codec.encode([payloadOf('result of the first')], runs[0]);
    for (const context of [schedule, ...runs]) {
      expect(valueOf((await codec.decode(encrypted, context))[0]!)).toBe('result of the first');
    }
  });

  test('security-10 the name of a run of a schedule opens nothing of another workflow', async () => {
    const encrypted = await codec.encode([payloadOf('x')], HERE);
    const runOf = (id: string) => ({ ...HERE, workflowId: `${id}-2026-11-24T16:00:00Z` });
    for (const start of [HERE.workflowId, `x-intent-retention`])
      await expect(codec.decode(encrypted, runOf(start))).rejects.toThrow('sealed for another workflow');
    const ofSlash = await codec.encode([payloadOf('x')], { ...HERE, workflowId: 'x/intent-retention' });
    await expect(codec.decode(ofSlash, runOf('x/intent-retention'))).rejects.toThrow('another workflow');
    for (const { id } of needsOf(loadConfig({ NOTIFICATION_ROLES: ROLE_NAMES.join(',') })).schedules) {
      const ofRun = await codec.encode([payloadOf(id)], runOf(id));
      expect(valueOf((await codec.decode(ofRun, { ...HERE, workflowId: id }))[0]!)).toBe(id);
    }
  });

  test('security-15 payloads in plain are refused, unless the installation is changing', async () => {
    const plain = payloadOf('plain');
    const sealed = await codec.encode([plain], HERE);
    await expect(codec.decode([...sealed, plain], HERE)).rejects.toThrow('NOTIFICATION_PAYLOAD_PLAIN=refuse');
    const changing = createPayloadCodec([NEW, OLD], 'accept');
    expect(await changing.decode([plain], HERE)).toEqual([plain]);
    const [bound] = await changing.encode([plain], HERE);
    expect(payloadHeadOf(bound!)).toMatchObject({ keyId: '2026', owner: { workflowId: HERE.workflowId } });
    expect(valueOf((await changing.decode(sealed, HERE))[0]!)).toBe('plain');
  });

  test('security-15 what is sealed for no workflow opens in each', async () => {
    const [unbound] = await codec.encode([payloadOf('x')]);
    expect(payloadHeadOf(unbound!)).toEqual({ keyId: '2026', owner: { namespace: '', workflowId: '' } });
    expect(valueOf((await codec.decode([unbound!], HERE))[0]!)).toBe('x');
  });

  test('I51 I60 what Temporal itself says of a cancelled activity is taken in plain, and nothing like it', async () => {
    const said = payloadOf('ACTIVITY_ID_NOT_STARTED');
    expect(await codec.decode([said], HERE)).toEqual([said]);
    expect([...sealingKeysIn({ details: { payloads: [said] } })]).toEqual([]);
    const others = [
      payloadOf('ACTIVITY_ID_NOT_STARTED '),
      { ...said, metadata: { encoding: Buffer.from('json/protobuf') } },
      { ...said, metadata: {} },
    ];
    for (const other of others)
      await expect(codec.decode([other], HERE)).rejects.toThrow('NOTIFICATION_PAYLOAD_PLAIN=refuse');
  });

  test('I51 of a history it is known which keys have sealed it', async () => {
    const first = await codec.encode([payloadOf(1)], HERE);
    const [second] = await createPayloadCodec([OLD]).encode([payloadOf(2)]);
    const found = sealingKeysIn({ events: [{ a: first }, { b: { c: second } }, payloadOf(3)] });
    expect([...found]).toEqual(['2026', '2025', 'in plain']);
  });

  test('security-17 the published vector is what is written and read', async () => {
    const { key, plain, namespace, workflowId, salt, sealed } = vectors;
    const keys = [{ id: key.id, key: Buffer.from(key.bytes, 'hex') }];
    const vectorCodec = createPayloadCodec(keys, 'refuse', () => Buffer.from(salt, 'hex'));
    const where = { type: 'workflow' as const, namespace, workflowId };
    const [written] = await vectorCodec.encode([PayloadMessage.decode(Buffer.from(plain, 'hex'))], where);
    expect(Buffer.from(written!.data!).toString('hex')).toBe(sealed);
    const [read] = await vectorCodec.decode([written!], where);
    expect(valueOf(read!)).toEqual({ a: 1 });
  });
});

/** Encryption of what Temporal keeps, and the server that decrypts it for people. */
import { randomBytes } from 'node:crypto';
import { defaultPayloadConverter } from '@temporalio/common';
import { createPayloadCodec } from '../../api/payload-codec.ts';
import type { CodecServer } from '../../workers/codec-server.ts';
import { startCodecServer } from '../../workers/codec-server.ts';
import { createLogger } from '../../workers/logger.ts';

const keyNamed = (id: string) => ({ id, key: randomBytes(32) });
const [OLD, NEW] = [keyNamed('2025'), keyNamed('2026')];
const TOKEN = 'a token of good length';
const ORIGIN = 'https://temporal.example.com';

const payloadOf = (value: unknown) => defaultPayloadConverter.toPayload(value);
const valueOf = (payload: Parameters<typeof defaultPayloadConverter.fromPayload>[0]) =>
  defaultPayloadConverter.fromPayload<unknown>(payload);

describe('the codec', () => {
  const codec = createPayloadCodec([NEW, OLD]);

  test('I40 what is encrypted says nothing, and opens again', async () => {
    const [encrypted] = await codec.encode([payloadOf({ name: 'Andromeda' })]);
    expect(Buffer.from(encrypted!.data!).toString('latin1')).not.toMatch(/Andromeda|json/);
    const [decrypted] = await codec.decode([encrypted!]);
    expect(valueOf(decrypted!)).toEqual({ name: 'Andromeda' });
  });

  test('I40 after a rotation the old key still opens, and the new one encrypts', async () => {
    const encrypted = await createPayloadCodec([OLD]).encode([payloadOf('old')]);
    expect(valueOf((await codec.decode(encrypted))[0]!)).toBe('old');
    const again = await codec.encode([payloadOf('new')]);
    await expect(createPayloadCodec([OLD]).decode(again)).rejects.toThrow('2026, which is not configured');
  });

  test('I40 what was never encrypted is left alone, what was changed is refused', async () => {
    const plain = payloadOf('plain');
    expect(await codec.decode([plain])).toEqual([plain]);
    const [encrypted] = await codec.encode([plain]);
    encrypted!.data![encrypted!.data!.length - 1]! ^= 1;
    await expect(codec.decode([encrypted!])).rejects.toThrow('does not open');
  });
});

describe('the codec server', () => {
  let server: CodecServer;
  beforeAll(async () => {
    server = await startCodecServer({
      host: '127.0.0.1',
      port: 0,
      token: () => TOKEN,
      allowedOrigin: ORIGIN,
      codec: createPayloadCodec([NEW]),
      log: createLogger('fatal'),
    });
  });
  afterAll(() => server.stop());

  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${server.port}${path}`, {
      method: 'POST',
      ...init,
      headers: { authorization: `Bearer ${TOKEN}`, ...init.headers },
    });
  const asJson = (payload: ReturnType<typeof payloadOf>) => ({
    metadata: Object.fromEntries(
      Object.entries(payload.metadata!).map(([name, value]) => [name, Buffer.from(value).toString('base64')]),
    ),
    data: Buffer.from(payload.data!).toString('base64'),
  });

  test('I40 it encodes and decodes', async () => {
    const plain = { payloads: [asJson(payloadOf({ name: 'Andromeda' }))] };
    const encoded = await (await ask('/encode', { body: JSON.stringify(plain) })).text();
    expect(encoded).not.toContain(plain.payloads[0]!.data);
    const decoded: unknown = await (await ask('/decode', { body: encoded })).json();
    expect(decoded).toEqual(plain);
  });

  test('I40 without the token nobody gets an answer; a browser is told how to ask for it', async () => {
    const basic = (password: string) => `Basic ${Buffer.from(`any:${password}`).toString('base64')}`;
    const almost = [`${TOKEN}x`, TOKEN.slice(0, -1), TOKEN.slice(1)].map((token) => `Bearer ${token}`);
    for (const authorization of ['', 'Bearer wrong', basic('wrong'), 'Basic', TOKEN, ...almost]) {
      const response = await ask('/decode', { headers: { authorization }, body: '{}' });
      expect([authorization, response.status]).toEqual([authorization, 401]);
      expect(response.headers.get('www-authenticate')).toMatch(/^Basic/);
    }
    const response = await ask('/', { method: 'GET', headers: { authorization: basic(TOKEN) } });
    expect(response.status).toBe(200);
  });

  test("I40 of browsers' origins only the Web UI's may ask, and it asks first without the token", async () => {
    const preflight = await ask('/decode', {
      method: 'OPTIONS',
      headers: { authorization: '', origin: ORIGIN },
    });
    expect(preflight.status).toBe(204);
    expect(Object.fromEntries(preflight.headers)).toMatchObject({
      'access-control-allow-origin': ORIGIN,
      'access-control-allow-credentials': 'true',
      'access-control-allow-headers': expect.stringContaining('x-namespace'),
    });
    const foreign = await ask('/decode', { headers: { origin: 'https://evil.example' }, body: '{}' });
    expect(foreign.status).toBe(403);
    expect(foreign.headers.get('access-control-allow-origin')).toBeNull();
  });

  test.each([
    ['not JSON', '{', 400, 'not JSON'],
    ['no list', '{"payloads": 1}', 400, 'payloads'],
    ['no base64', '{"payloads": [{"data": "%"}]}', 400, 'payloads.0.data'],
    ['metadata of another kind', '{"payloads": [{"metadata": {"a": 1}}]}', 400, 'payloads.0.metadata'],
    [
      'what does not open',
      JSON.stringify({
        payloads: [{ metadata: { encoding: Buffer.from('binary/encrypted').toString('base64') }, data: '' }],
      }),
      400,
      'no sealed value',
    ],
  ])('I40 a body with %s is refused', async (_, body, status, text) => {
    const response = await ask('/decode', { body });
    expect([response.status, await response.text()]).toEqual([status, expect.stringContaining(text)]);
  });

  test('I40 other paths and methods are refused, and a huge body is not read', async () => {
    expect((await ask('/other', { body: '{}' })).status).toBe(404);
    expect((await ask('/decode', { method: 'GET' })).status).toBe(405);
    const huge = await ask('/decode', { body: 'x'.repeat(17 * 1024 * 1024) });
    expect(huge.status).toBe(413);
  });
});

/** The server that decrypts for people: who may read what, what the log says of it, and what its process needs. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer, request } from 'node:http';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { defaultPayloadConverter } from '@temporalio/common';
import type { CryptoKey, JWK, JWTPayload } from 'jose';
import { SignJWT, UnsecuredJWT, exportJWK, generateKeyPair } from 'jose';
import { createPayloadCodec } from '../../api/payload-codec.ts';
import { loadCodecConfig } from '../../config/load.ts';
import { listen } from '../../dev/servers/ports.ts';
import { startCodecServer } from '../../workers/codec-server.ts';
import { createLogger } from '../../workers/logger.ts';
import { eventually } from '../eventually.ts';
import { ofTests } from '../of-tests.ts';
import { PROGRAM_ENV } from '../program-env.ts';

const KEY = { id: '2026', key: randomBytes(32) };
const AUDIENCE = 'temporal-codec';
const ORIGIN = 'https://temporal.example.com';

const payloadOf = (value: unknown) => defaultPayloadConverter.toPayload(value);
const asJson = (payload: ReturnType<typeof payloadOf>) => ({
  metadata: Object.fromEntries(
    Object.entries(payload.metadata!).map(([name, value]) => [name, Buffer.from(value).toString('base64')]),
  ),
  data: Buffer.from(payload.data!).toString('base64'),
});

const codec = createPayloadCodec([KEY]);
/** As its metadata has it. */
const SEALED = Buffer.from('binary/encrypted').toString('base64');

interface Key {
  id: string;
  privateKey: CryptoKey;
  jwk: JWK;
}
const newKey = async (id: string): Promise<Key> => {
  const { privateKey, publicKey } = await generateKeyPair('RS256');
  return { id, privateKey, jwk: { ...(await exportJWK(publicKey)), kid: id, alg: 'RS256' } };
};

const first = await newKey('first');
let published = [first];
let keysStatus = 200;
const keyServer = createServer((_, response) => {
  response
    .writeHead(keysStatus, { 'content-type': 'application/json' })
    .end(JSON.stringify({ keys: published.map(({ jwk }) => jwk) }));
});
const issuer = `http://127.0.0.1:${await listen(keyServer)}`;
afterAll(() => void keyServer.close());

const claims = (changes: Record<string, unknown> = {}): JWTPayload => ({
  ...{ iss: issuer, aud: AUDIENCE, sub: 'nina', permissions: ['notify:read'] },
  exp: Math.floor(Date.now() / 1_000) + 300,
  ...changes,
});
const signed = (given: JWTPayload, { id, privateKey }: Key = first) =>
  new SignJWT(given).setProtectedHeader({ alg: 'RS256', kid: id }).sign(privateKey);
const TOKEN = await signed(claims());

const start = (more: Partial<Parameters<typeof startCodecServer>[0]> = {}) =>
  startCodecServer({
    ...{ host: '127.0.0.1', port: 0, allowedOrigin: ORIGIN, namespace: 'notify', codec },
    issuer: { jwksUrl: `${issuer}/jwks`, issuer, audience: AUDIENCE, permissionsClaim: 'permissions' },
    log: createLogger('fatal'),
    ...more,
  });

/** With a good token, unless told otherwise. */
const ask = ({ port }: { port: number }, init: RequestInit, path = '/decode') =>
  fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    ...init,
    headers: { authorization: `Bearer ${TOKEN}`, ...init.headers },
  });

/** That of a `describe`. */
const codecServerOfTests = (more?: Parameters<typeof start>[0]) =>
  ofTests(
    () => start(more),
    (server) => server.stop(),
  );

describe('the codec server', () => {
  const server = codecServerOfTests();

  test("I40 of browsers' origins only the Web UI's may ask, and it asks first without the token", async () => {
    const headers = { authorization: '', origin: ORIGIN };
    const preflight = await ask(server, { method: 'OPTIONS', headers });
    expect(preflight.status).toBe(204);
    expect(Object.fromEntries(preflight.headers)).toMatchObject({
      'access-control-allow-origin': ORIGIN,
      'access-control-allow-credentials': 'true',
      'access-control-allow-headers': expect.stringContaining('x-namespace'),
    });
    const foreign = await ask(server, { headers: { origin: 'https://evil.example' }, body: '{}' });
    expect(foreign.status).toBe(403);
    expect(foreign.headers.get('access-control-allow-origin')).toBeNull();
  });

  const empty = (count: number) => ({ payloads: Array.from({ length: count }, () => ({})) });
  const named = (count: number) => {
    const names = Array.from({ length: count }, (_, at) => [`n${at}`, ''] as const);
    return { payloads: [{}, { metadata: Object.fromEntries(names) }] };
  };
  const unopened = { metadata: { encoding: SEALED }, data: '' };
  test.each<[what: string, status: number, text: string, body: unknown]>([
    ['I40 not JSON', 400, 'not JSON', '{'],
    ['I40 no list', 400, 'payloads', { payloads: 1 }],
    ['I40 no base64', 400, 'payloads.0.data', { payloads: [{ data: '%' }] }],
    ['I40 metadata of another kind', 400, 'payloads.0.metadata: ', { payloads: [{ metadata: { a: 1 } }] }],
    ['I40 a payload that does not open', 400, 'no sealed', { payloads: [unopened] }],
    ['security-2 many payloads', 200, '', empty(10_000)],
    ['security-2 too many payloads', 413, 'a request has at most 10000 payloads', empty(10_001)],
    ['security-2 many names of metadata', 200, '', named(32)],
    ['security-2 too many names of metadata', 413, 'payloads.1.metadata: at most 32 names', named(33)],
    ['security-2 a huge body', 413, 'a request has at most', 'x'.repeat(5 * 1024 * 1024)],
  ])('%s: a body is answered %d %s', async (_, status, text, body) => {
    const response = await ask(server, { body: typeof body === 'string' ? body : JSON.stringify(body) });
    expect([response.status, await response.text()]).toEqual([status, expect.stringContaining(text)]);
  });

  test('I40 without a token no caller gets an answer', async () => {
    for (const authorization of ['', 'Bearer', 'Bearer wrong', `Basic ${TOKEN}`, TOKEN]) {
      const { status } = await ask(server, { headers: { authorization }, body: '{}' });
      expect([authorization, status]).toEqual([authorization, 401]);
    }
  });

  test('I40 security-2 security-16 other paths and methods are refused, and no caller encodes', async () => {
    for (const path of ['/encode', '/other', '//'])
      expect([path, (await ask(server, { body: '{}' }, path)).status]).toEqual([path, 404]);
    expect((await ask(server, { method: 'GET' })).status).toBe(405);
  });

  test('I40 a taken port is an error that names the variable', async () => {
    const error = `port ${server.port} is taken; set NOTIFICATION_CODEC_HTTP_ADDR to another one`;
    await expect(start({ port: server.port })).rejects.toThrow(error);
  });
});

describe('the codec server and clients that take their time', () => {
  const server = codecServerOfTests({ requestLimitMs: 1_000 });

  const write = (text: string) => {
    const socket = connect(server.port, '127.0.0.1').on('error', () => undefined);
    socket.resume().write(text);
    return socket;
  };
  const head = `POST /decode HTTP/1.1\r\nhost: codec\r\nauthorization: Bearer ${TOKEN}\r\ncontent-length: 15\r\n\r\n`;
  const decode = async () => (await ask(server, { body: '{"payloads":[]}' })).status;

  test.each([
    ['sends nothing', ''],
    ['does not finish its head', head.slice(0, 40)],
    ['does not finish its body', `${head}{"pay`],
  ])(
    'security-2 one that %s is cut off',
    async (_, text) => void (await once(write(text), 'close')),
    // By itself, Node looks for such clients every 30 seconds.
    20_000,
  );

  test('security-2 bodies are read a few at a time', async () => {
    const slow = Array.from({ length: 8 }, () => write(`${head}{"pay`));
    await eventually('a refusal', async () => (await decode()) === 503);
    await Promise.all(slow.map((socket) => once(socket, 'close')));
    expect(await decode()).toBe(200);
  });
});

describe('the tokens of the codec server', () => {
  const owner = (workflowId: string, namespace = 'notify') => ({
    type: 'workflow' as const,
    ...{ namespace, workflowId },
  });
  const lines: Record<string, unknown>[] = [];
  const logged = (msg: string) => lines.filter((line) => line['msg'] === msg);

  const log = createLogger('info', {
    write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>),
  });
  const server = codecServerOfTests({ log });

  const decode = async (
    token: string,
    sealed: readonly ReturnType<typeof payloadOf>[],
    { namespace, asked = server }: { namespace?: string | undefined; asked?: { port: number } } = {},
  ) => {
    const headers = { authorization: `Bearer ${token}`, ...(namespace && { 'x-namespace': namespace }) };
    const response = await ask(asked, { body: JSON.stringify({ payloads: sealed.map(asJson) }), headers });
    return { status: response.status, text: await response.text() };
  };

  test('security-16 who may read a namespace reads it, and the log says who and of which workflows, never what', async () => {
    const plain = payloadOf('as it is');
    const sealed = await codec.encode([payloadOf({ name: 'Andromeda' })], owner('notification/1-0'));
    const read = await decode(await signed(claims()), [...sealed, plain], { namespace: 'notify' });
    expect(read.status).toBe(200);
    const { payloads } = JSON.parse(read.text) as { payloads: { data: string }[] };
    const texts = payloads.map(({ data }) => Buffer.from(data, 'base64').toString());
    expect(texts).toEqual(['{"name":"Andromeda"}', '"as it is"']);
    expect(logged('payloads decoded').at(-1)).toMatchObject({
      ...{ who: 'nina', namespaces: ['notify'], workflow_ids: ['notification/1-0'] },
      ...{ payloads: 1, key_ids: ['2026'] },
    });
    expect(JSON.stringify(lines)).not.toMatch(/Andromeda|eyJ/);
  });

  test('security-16 a token that is expired, foreign, changed, unsigned or of another use is no proof', async () => {
    const sealed = await codec.encode([payloadOf('x')], owner('w'));
    const foreign = await newKey('first');
    const good = await signed(claims());
    const [head, body, signature] = good.split('.');
    const other = Buffer.from(JSON.stringify(claims({ sub: 'eve' }))).toString('base64url');
    const secret = new TextEncoder().encode(JSON.stringify(first.jwk));
    const nowS = Math.floor(Date.now() / 1_000);
    const untimely = [{ exp: nowS - 60 }, { exp: undefined }, { nbf: nowS + 600 }];
    const wrong = [...untimely, { iss: 'https://evil.example' }, { aud: 'another' }, { sub: undefined }];
    const tokens = [
      ...(await Promise.all(wrong.map((changes) => signed(claims(changes))))),
      await signed(claims(), foreign),
      await signed(claims(), { ...first, id: 'unknown' }),
      `${head}.${other}.${signature}`,
      `${head}.${body}.`,
      new UnsecuredJWT(claims()).encode(),
      await new SignJWT(claims()).setProtectedHeader({ alg: 'HS256', kid: 'first' }).sign(secret),
      'not a token',
      `${'x'.repeat(4_000)}.y.z`,
    ];
    const before = logged('payloads decoded').length;
    for (const [at, token] of tokens.entries()) {
      expect([at, (await decode(token, sealed)).status]).toEqual([at, 401]);
    }
    expect((await decode(good, sealed)).status).toBe(200);
    expect(logged('payloads decoded')).toHaveLength(before + 1);
  });

  test('security-16 what the token does not allow is refused, whatever the request says', async () => {
    const here = await codec.encode([payloadOf('x')], owner('w'));
    const elsewhere = await codec.encode([payloadOf('x')], owner('w', 'other'));
    // It names no namespace, so it is of the service's own.
    const unbound = await codec.encode([payloadOf('x')]);
    const nothing = [undefined, [], 7, ['notify'], ['notify:nothing'], { notify: 'read' }];
    const cases: [status: number, permissions: unknown, sealed: typeof here, namespace?: string][] = [
      [403, ['notify:read'], elsewhere],
      [403, ['notify:read'], elsewhere, 'notify'],
      [403, ['notify:read'], [...here, ...elsewhere]],
      [403, ['other:read'], here, 'other'],
      [403, ['other:read'], unbound, 'other'],
      [403, ['other:read'], unbound],
      ...nothing.map((permissions): [number, unknown, typeof here] => [403, permissions, here]),
      [200, ['notify:write'], unbound],
      [200, 'other:read notify:read', here],
      [200, ['temporal-system:admin'], elsewhere, 'other'],
    ];
    for (const [at, [status, permissions, sealed, namespace]] of cases.entries()) {
      const answer = await decode(await signed(claims({ permissions })), sealed, { namespace });
      expect([at, answer.status]).toEqual([at, status]);
    }
    expect(logged('codec request refused').at(-1)).toMatchObject({ status: 403, who: 'nina' });
  });

  test('security-2 a caller who may read nothing is refused before the body is read', async () => {
    const authorization = `Bearer ${await signed(claims({ permissions: ['notify:nothing'] }))}`;
    const headers = { authorization, 'content-length': 1_000_000 };
    const asking = request(`http://127.0.0.1:${server.port}/decode`, { method: 'POST', headers });
    asking.on('error', () => undefined);
    asking.write('{"payloads": [');
    const [response] = (await once(asking, 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(403);
    asking.destroy();
  });

  test('security-16 a new key of the issuer is taken, and while it is away no caller is believed', async () => {
    const sealed = await codec.encode([payloadOf('x')], owner('w'));
    const second = await newKey('second');
    published = [second];
    const fresh = await start({ log });
    keysStatus = 500;
    const statusOf = async (key: Key) =>
      (await decode(await signed(claims(), key), sealed, { asked: fresh })).status;
    expect(await statusOf(second)).toBe(503);
    keysStatus = 200;
    expect(await statusOf(second)).toBe(200);
    expect(await statusOf(first)).toBe(401);
    await fresh.stop();
    published = [first];
  });
});

describe('the codec server as a separate process', () => {
  const ENV = {
    NODE_ENV: 'production',
    NOTIFICATION_PAYLOAD_KEYS: `k:${KEY.key.toString('base64')}`,
    NOTIFICATION_CODEC_JWKS_URL: 'https://login.example/keys',
    NOTIFICATION_CODEC_ISSUER: 'login',
    NOTIFICATION_CODEC_AUDIENCE: 'codec',
    NOTIFICATION_CODEC_HTTP_ADDR: '127.0.0.1:0',
    NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
  };

  test('security-2 it runs in production without an address of Redis, PostgreSQL and Temporal', async () => {
    const child = spawn(process.execPath, ['workers/main.ts', 'codec-server'], {
      env: { ...PROGRAM_ENV, ...ENV },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(child, 'close');
    try {
      let ready: { port?: number; probes?: string } = {};
      for await (const line of createInterface({ input: child.stdout })) {
        const said = JSON.parse(line) as typeof ready & { msg: string };
        if (said.msg === 'codec server ready') ready = said;
        if (ready.port !== undefined) break;
      }
      const headers = { authorization: 'Bearer x' };
      const answers = [
        await fetch(`http://127.0.0.1:${ready.port}/decode`, { method: 'POST', headers, body: '{}' }),
        await fetch(`${ready.probes}/readyz`),
      ];
      expect(answers.map(({ status }) => status)).toEqual([401, 200]);
    } finally {
      child.kill('SIGTERM');
    }
    expect(await ended).toEqual([0, null]);
  }, 60_000);

  test.each([
    ['no address', { NOTIFICATION_CODEC_HTTP_ADDR: '' }, 'NOTIFICATION_CODEC_HTTP_ADDR is required'],
    ['no key', { NOTIFICATION_PAYLOAD_KEYS: '' }, 'NOTIFICATION_PAYLOAD_KEYS is required'],
    ['no signer of tokens', { NOTIFICATION_CODEC_JWKS_URL: '' }, 'NOTIFICATION_CODEC_JWKS_URL is required'],
    ['an address for all', { NOTIFICATION_CODEC_HTTP_ADDR: ':8091' }, 'must be on the loopback'],
    ['another kind of production', { NODE_ENV: 'prod' }, 'NODE_ENV must be'],
  ])('security-2 with %s it does not start', (_, env: Record<string, string>, named) => {
    expect(() => loadCodecConfig({ ...ENV, ...env })).toThrow(named);
  });

  test('security-2 what is open to servers that it does not call stops nothing', () => {
    const open = { NOTIFICATION_REDIS_MASTER_ADDR: 'redis:6379', TEMPORAL_ADDRESS: 'temporal:7233' };
    const { wires } = loadCodecConfig({ ...ENV, ...open });
    expect(wires.map(({ name }) => name)).toEqual(['codec server', 'keys of payloads']);
  });
});

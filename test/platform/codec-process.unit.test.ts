/** The codec server as a separate process: what it needs, and what it does without. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { loadCodecConfig } from '../../config/load.ts';
import { PROGRAM_ENV } from '../program-env.ts';

const ENV = {
  NODE_ENV: 'production',
  NOTIFICATION_PAYLOAD_KEYS: `k:${randomBytes(32).toString('base64')}`,
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

const withoutIssuer = {
  NOTIFICATION_CODEC_JWKS_URL: '',
  NOTIFICATION_CODEC_ISSUER: '',
  NOTIFICATION_CODEC_AUDIENCE: '',
};

test.each([
  ['no address', { NOTIFICATION_CODEC_HTTP_ADDR: '' }, 'NOTIFICATION_CODEC_HTTP_ADDR is required'],
  ['no key', { NOTIFICATION_PAYLOAD_KEYS: '' }, 'NOTIFICATION_PAYLOAD_KEYS is required'],
  ['no signer of tokens', withoutIssuer, 'NOTIFICATION_CODEC_JWKS_URL is required'],
  ['an address for all', { NOTIFICATION_CODEC_HTTP_ADDR: ':8091' }, 'must be on the loopback'],
  ['another kind of production', { NODE_ENV: 'prod' }, 'NODE_ENV must be'],
])('security-2 with %s it does not start', (_, env: Record<string, string>, named) => {
  expect(() => loadCodecConfig({ ...ENV, ...env })).toThrow(named);
});

test('security-2 what is open to servers that it does not call stops nothing', () => {
  const open = { NOTIFICATION_REDIS_MASTER_ADDR: 'redis:6379', TEMPORAL_ADDRESS: 'temporal:7233' };
  expect(loadCodecConfig({ ...ENV, ...open }).wires.map(({ name }) => name)).toEqual([
    'codec server',
    'keys of payloads',
  ]);
});

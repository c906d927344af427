/** The variables of the role subscription: what production needs, and what is no address and no key. */
import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { createKeyBox } from '../../api/key-box.ts';
import type { ConfigError } from '../../config/variables.ts';
import { loadConfig } from '../../config/load.ts';
import { sealingKeysOf } from '../../config/subscription.ts';
import { scratchFolder } from '../scratch.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const FINGERPRINT = Buffer.alloc(32, 9).toString('base64url');

function problemsOf(env: Record<string, string>): readonly string[] {
  try {
    loadConfig(env);
    return [];
  } catch (error) {
    return (error as ConfigError).problems;
  }
}

test('N14 N19 keys and routers are read as they are written', () => {
  const { values } = loadConfig({
    NOTIFICATION_SUBSCRIPTION_KEYS: `new:${KEY}, old:${KEY}`,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: `ntf://${FINGERPRINT}@ntf1.example,abc.onion:444, ntf://${FINGERPRINT}@[::1]`,
  });
  expect(values.NOTIFICATION_SUBSCRIPTION_KEYS).toEqual([
    { id: 'new', key: Buffer.alloc(32, 7) },
    { id: 'old', key: Buffer.alloc(32, 7) },
  ]);
  expect(values.NOTIFICATION_SUBSCRIPTION_NTF_SERVERS).toEqual([
    { host: 'ntf1.example,abc.onion', port: 444, keyHash: FINGERPRINT },
    { host: '::1', port: 443, keyHash: FINGERPRINT },
  ]);
});

test.each([
  ['NOTIFICATION_SUBSCRIPTION_KEYS', KEY],
  ['NOTIFICATION_SUBSCRIPTION_KEYS', `id:${KEY.slice(4)}`],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', 'ntf.example:443'],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', `:443#${FINGERPRINT}`],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', `smp://${FINGERPRINT}:${KEY.slice(4)}@smp.example`],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', `ntf://${FINGERPRINT}@ntf.example,other.example:443:444`],
  ['NOTIFICATION_SUBSCRIPTION_RETRY', '2s'],
  ['NOTIFICATION_SUBSCRIPTION_RETRY', '2s,1s'],
  ['NOTIFICATION_SUBSCRIPTION_RETRY', '2s,10s,3m'],
])('N14 %s=%s is refused, and a key is not repeated', (name, value) => {
  const problems = problemsOf({ [name]: value });
  expect(problems).toHaveLength(1);
  expect(problems[0]).toContain(name);
  expect(problems[0]).not.toContain(KEY.slice(4));
});

test('N14 in production the role needs keys and routers; other roles do not', () => {
  const env = { NODE_ENV: 'production', NOTIFICATION_ROLES: 'subscription' };
  const missing = problemsOf(env).filter((problem) => problem.includes('SUBSCRIPTION'));
  expect(missing).toEqual([
    expect.stringMatching(/^NOTIFICATION_SUBSCRIPTION_KEYS is required in production/),
    expect.stringMatching(/^NOTIFICATION_SUBSCRIPTION_NTF_SERVERS is required in production/),
  ]);
  expect(problemsOf({ NODE_ENV: 'production' }).join()).not.toContain('SUBSCRIPTION');
});

const scratch = scratchFolder('key');
test('N14 elsewhere one key is kept in the data directory, for no other user to read', () => {
  const dataDir = scratch.dir;
  const env = { NOTIFICATION_ROLES: 'subscription', NOTIFICATION_DATA_DIR: dataDir };
  const [one, other] = [1, 2].map(() => createKeyBox(sealingKeysOf(loadConfig(env))));
  const sealed = one!.seal(Buffer.from('secret'), 'context');
  expect(other!.open(sealed, 'context').toString()).toBe('secret');
  const file = path.join(dataDir, 'subscription.key');
  expect(Buffer.from(readFileSync(file, 'utf8'), 'base64')).toHaveLength(32);
  expect(statSync(file).mode & 0o077).toBe(0);
});

/** The variables of the role subscription: what production needs, and what is an address of a router and a key. */
import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { createKeyBox } from '../../api/key-box.ts';
import {
  AddressError,
  parseBinaryAddress,
  parseRouterAddress,
  routerAddressText,
} from '../../api/subscription/router-address.ts';
import type { ConfigError } from '../../config/variables.ts';
import { loadConfig } from '../../config/load.ts';
import { sealingKeysOf } from '../../config/subscription.ts';
import { scratchFolder } from '../scratch.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const PRINT = 'sLDO9_eX4w7ncAHHxrwEVWvMW6Xl6IHteWjJoubZvf8';

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
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: `ntf://${PRINT}@ntf1.example,abc.onion:444, ntf://${PRINT}@[::1]`,
  });
  expect(values.NOTIFICATION_SUBSCRIPTION_KEYS).toEqual([
    { id: 'new', key: Buffer.alloc(32, 7) },
    { id: 'old', key: Buffer.alloc(32, 7) },
  ]);
  expect(values.NOTIFICATION_SUBSCRIPTION_NTF_SERVERS).toEqual([
    { host: 'ntf1.example,abc.onion', port: 444, keyHash: PRINT },
    { host: '::1', port: 443, keyHash: PRINT },
  ]);
});

test.each([
  ['NOTIFICATION_SUBSCRIPTION_KEYS', KEY],
  ['NOTIFICATION_SUBSCRIPTION_KEYS', `id:${KEY.slice(4)}`],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', 'ntf.example:443'],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', `:443#${PRINT}`],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', `smp://${PRINT}:${KEY.slice(4)}@smp.example`],
  ['NOTIFICATION_SUBSCRIPTION_NTF_SERVERS', `ntf://${PRINT}@ntf.example,other.example:443:444`],
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

const ONION = `${'a'.repeat(56)}.onion`;

test.each([
  [`smp://${PRINT}@smp.example`, 'smp', 'smp.example', 5_223],
  [`ntf://${PRINT}=@Ntf.Example:8443`, 'ntf', 'ntf.example', 8_443],
  [`ntf://${PRINT}@192.0.2.1`, 'ntf', '192.0.2.1', 443],
  [`smp://${PRINT}@[2001:db8::1]:1`, 'smp', '2001:db8::1', 1],
  [`smp://${PRINT}:apass@smp.example,${ONION}:5224`, 'smp', `smp.example,${ONION}`, 5_224],
])('N19 %s is an address', (text, protocol, host, port) => {
  expect(parseBinaryAddress(text)).toEqual({ protocol, host, port, keyHash: PRINT });
});

test('N19 an address is written as it is read, without its password', () => {
  const address = { host: 'smp.example', port: 5_223, keyHash: PRINT };

  expect(parseRouterAddress(`smp://${PRINT}:secret@smp.example`, 'smp')).toEqual(address);
  expect(routerAddressText(address, 'smp')).toBe(`smp://${PRINT}@smp.example:5223`);
  expect(parseRouterAddress(routerAddressText({ ...address, host: '::1' }, 'smp'), 'smp')).toEqual({
    ...address,
    host: '::1',
  });
  expect(() => parseRouterAddress(`ntf://${PRINT}@ntf.example`, 'smp')).toThrow('the scheme is smp');
});

test.each([
  ['', 'an address is'],
  ['smp.example:5223', 'an address is'],
  [`smp.example:5223#${PRINT}`, 'an address is'],
  [`smp://${PRINT}`, 'an address is'],
  [`https://${PRINT}@smp.example`, 'the scheme is'],
  [`smp://${PRINT}@smp.example/queue`, 'the host is'],
  [`smp://${PRINT}@smp.example:5223/queue`, 'the port is'],
  [`smp://${PRINT}@smp.example:0`, 'the port is'],
  [`smp://${PRINT}@smp.example:65536`, 'the port is'],
  [`smp://${PRINT}@smp.example:`, 'the port is'],
  [`smp://${PRINT}@smp.example:05223`, 'the port is'],
  [`smp://${PRINT}@`, 'the host is'],
  [`smp://${PRINT}@a,,b`, 'the host is'],
  [`smp://${PRINT}@-a`, 'the host is'],
  [`smp://${PRINT}@a b`, 'the host is'],
  [`smp://${PRINT}@${'a'.repeat(254)}`, 'the host is'],
  [`smp://${PRINT}@[::1`, 'an address is'],
  [`smp://${PRINT}@[::zz]`, 'the host is'],
  [
    `smp://${PRINT}@${[1, 2, 3].map((n) => `${'a'.repeat(60)}${n}.example`).join(',')}`,
    'the hosts have at most',
  ],
  [`smp://${PRINT}@a,A`, 'the hosts are not all different'],
  [`smp://${PRINT}@${'abcdefghi'.split('').join(',')}`, 'the hosts are at most 8'],
  [`smp://${PRINT.slice(1)}@a`, 'the fingerprint has'],
  [`smp://${PRINT}AAAA@a`, 'the fingerprint has'],
  [`smp://${PRINT.slice(0, -1)}9@a`, 'the fingerprint has'],
  ['smp://@a', 'the fingerprint has'],
  [`ntf://${PRINT}:secret@a`, 'the password is for messaging routers only'],
  [`smp://${PRINT}:secret@evil@a`, 'an address is'],
])('N19 %j is invalid, and the part that is wrong is named', (text, why) => {
  const parse = () => parseBinaryAddress(text);

  expect(parse).toThrow(AddressError);
  expect(parse).toThrow(why);
  expect(parse).not.toThrow('secret');
});

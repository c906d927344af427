/** Addresses of routers as people have them. */
import {
  AddressError,
  parseBinaryAddress,
  parseRouterAddress,
  routerAddressText,
} from '../../api/subscription/router-address.ts';

const PRINT = 'sLDO9_eX4w7ncAHHxrwEVWvMW6Xl6IHteWjJoubZvf8';
const ONION = `${'a'.repeat(56)}.onion`;

test.each([
  [`smp://${PRINT}@smp.example`, { protocol: 'smp', host: 'smp.example', port: 5_223, keyHash: PRINT }],
  [`ntf://${PRINT}=@Ntf.Example:8443`, { protocol: 'ntf', host: 'ntf.example', port: 8_443, keyHash: PRINT }],
  [`ntf://${PRINT}@192.0.2.1`, { protocol: 'ntf', host: '192.0.2.1', port: 443, keyHash: PRINT }],
  [`smp://${PRINT}@[2001:db8::1]:1`, { protocol: 'smp', host: '2001:db8::1', port: 1, keyHash: PRINT }],
  [
    `smp://${PRINT}:a pass@smp.example,${ONION}:5224`.replace(' ', ''),
    { protocol: 'smp', host: `smp.example,${ONION}`, port: 5_224, keyHash: PRINT },
  ],
])('N19 %s is an address', (text, address) => {
  expect(parseBinaryAddress(text)).toEqual(address);
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

/** Keys between agents and routers. */
import { dhSecret, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import { publicKeyOf } from './binary/recordings.ts';

const hex = (text: string): Buffer => Buffer.from(text, 'hex');

test('N17 raw keys are the ones of RFC 8032', () => {
  // Section 7.1, test 1.
  const privateKey = hex('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60');

  expect(publicKeyOf('ed25519', privateKey)).toEqual(
    hex('d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a'),
  );
});

test('N17 the agreed secret is the one of RFC 7748', () => {
  // Section 6.1.
  const bobPrivate = hex('5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb');
  const alicePublic = hex('8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a');

  expect(dhSecret(alicePublic, bobPrivate)).toEqual(
    hex('4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742'),
  );
});

test('N17 both sides agree on the same secret, no other party does', () => {
  const [ours, theirs, others] = [generateDhKeys(), generateDhKeys(), generateDhKeys()];
  const secret = dhSecret(theirs.publicKey, ours.privateKey);

  expect(dhSecret(ours.publicKey, theirs.privateKey)).toEqual(secret);
  expect(dhSecret(ours.publicKey, others.privateKey)).not.toEqual(secret);
  expect(secret.length).toBe(32);
});

test('N17 a key of another length or a point without a secret is refused', () => {
  const { privateKey } = generateDhKeys();

  expect(() => dhSecret(Buffer.alloc(31, 1), privateKey)).toThrow('a raw key has 32 bytes, not 31');
  expect(() => dhSecret(Buffer.alloc(32), privateKey)).toThrow();
});

/** Keys, signatures and encryption between agents and routers. */
import { randomBytes } from 'node:crypto';
import type { SignedContent } from '../../activities/subscription/router/signing.ts';
import {
  authPublicKeyOf,
  box,
  dhSecret,
  generateAuthKeys,
  generateDhKeys,
  isSignedBy,
  signCommand,
  unbox,
} from '../../activities/subscription/router/signing.ts';

const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const CONTENT: SignedContent = { router: 'router', id: '1', entity: 'queue', command: { op: 'NDEL' } };

test('N17 raw keys are the ones of RFC 8032', () => {
  // Section 7.1, test 1.
  const privateKey = hex('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60');

  expect(authPublicKeyOf(privateKey)).toEqual(
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

test('N17 both sides agree on the same secret, nobody else does', () => {
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

test('N17 a signature holds for this command, entity, number and router only', () => {
  const keys = generateAuthKeys();
  const signature = signCommand(CONTENT, keys.privateKey);
  const { entity: _entity, ...withoutEntity } = CONTENT;

  expect(keys.publicKey.length).toBe(32);
  expect(isSignedBy(CONTENT, signature, keys.publicKey)).toBe(true);
  for (const other of [
    { ...CONTENT, router: 'other' },
    { ...CONTENT, id: '2' },
    { ...CONTENT, entity: 'other' },
    withoutEntity,
    { ...CONTENT, command: { op: 'DEL' as const } },
  ]) {
    expect(isSignedBy(other, signature, keys.publicKey)).toBe(false);
  }
  expect(isSignedBy(CONTENT, signature, generateAuthKeys().publicKey)).toBe(false);
});

test.each(['', 'none', 'AAAA', '!'.repeat(86)])('N17 %j is no signature', (signature) => {
  expect(isSignedBy(CONTENT, signature, generateAuthKeys().publicKey)).toBe(false);
  expect(isSignedBy(CONTENT, signature, Buffer.alloc(3))).toBe(false);
});

test('N17 the order of fields does not matter to a signature', () => {
  const { privateKey, publicKey } = generateAuthKeys();
  const command = { op: 'NKEY' as const, notifierKey: 'a', recipientDhKey: 'b' };
  const swapped = { recipientDhKey: 'b', notifierKey: 'a', op: 'NKEY' as const };

  expect(
    isSignedBy({ ...CONTENT, command: swapped }, signCommand({ ...CONTENT, command }, privateKey), publicKey),
  ).toBe(true);
});

test('N17 what is encrypted opens with the same secret for the same kind only', () => {
  const secret = randomBytes(32);
  const plain = Buffer.from('a registration code');
  const boxed = box(plain, secret, 'verification');

  expect(unbox(boxed, secret, 'verification')).toEqual(plain);
  expect(unbox(boxed, secret, 'message-list')).toBeUndefined();
  expect(unbox(boxed, randomBytes(32), 'verification')).toBeUndefined();
  expect(
    unbox({ ...boxed, nonce: box(plain, secret, 'verification').nonce }, secret, 'verification'),
  ).toBeUndefined();
  for (const content of ['', 'AAAA', `A${boxed.content.slice(1)}A`]) {
    expect(unbox({ ...boxed, content }, secret, 'verification')).toBeUndefined();
  }
  expect(unbox({ ...boxed, nonce: '' }, secret, 'verification')).toBeUndefined();
});

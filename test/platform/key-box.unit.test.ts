/** Encryption at rest of keys, tokens and codes. */
import { randomBytes } from 'node:crypto';
import type { KeyBoxKey } from '../../api/key-box.ts';
import { KeyBoxError, createKeyBox } from '../../api/key-box.ts';

const keyNamed = (id: string): KeyBoxKey => ({ id, key: randomBytes(32) });
const OLD = keyNamed('2025');
const NEW = keyNamed('2026');
const CONTEXT = 'ntf_tokens.dh_secret:default';
const SECRET = Buffer.from('a secret of thirty-two bytes, ok');

function errorOf(work: () => unknown): KeyBoxError {
  try {
    work();
  } catch (error) {
    if (error instanceof KeyBoxError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

test.each([
  ['a secret', SECRET],
  ['nothing', Buffer.alloc(0)],
  ['much', randomBytes(100_000)],
])('N14 %s is sealed and opened again', (_what, plain) => {
  const box = createKeyBox([NEW]);

  const sealed = box.seal(plain, CONTEXT);
  expect(sealed.length).toBe(2 + NEW.id.length + 32 + 16 + plain.length);
  if (plain.length > 0) expect(sealed.includes(plain)).toBe(false);
  expect(box.open(sealed, CONTEXT)).toEqual(plain);
});

test('N14 I62 security-17 the same value is sealed with another key and nonce each time', () => {
  const box = createKeyBox([NEW]);
  const sealed = Array.from({ length: 50 }, () => box.seal(SECRET, CONTEXT).toString('hex'));

  expect(new Set(sealed).size).toBe(50);
});

test('N14 rotation: the first key seals, those behind it still open, one taken out does not', () => {
  const before = createKeyBox([OLD]).seal(SECRET, CONTEXT);
  const rotating = createKeyBox([NEW, OLD]);
  const after = rotating.seal(SECRET, CONTEXT);

  expect(rotating.open(before, CONTEXT)).toEqual(SECRET);
  expect(createKeyBox([NEW]).open(after, CONTEXT)).toEqual(SECRET);
  expect(errorOf(() => createKeyBox([OLD]).open(after, CONTEXT)).message).toBe(
    'ntf_tokens.dh_secret:default is sealed with the key 2026, which is not configured',
  );
});

test('N14 a value opens only where it belongs, with the key that sealed it, and when no bit of it has changed', () => {
  const box = createKeyBox([NEW, OLD]);
  const sealed = box.seal(SECRET, CONTEXT);

  expect(errorOf(() => box.open(sealed, 'ntf_tokens.dh_secret:other')).message).toContain('does not open');
  const ofTheSameId = createKeyBox([keyNamed(NEW.id)]);
  expect(errorOf(() => ofTheSameId.open(sealed, CONTEXT)).message).toContain(
    'does not open with the key 2026',
  );
  for (let at = 0; at < sealed.length; at++) {
    const changed = Buffer.from(sealed);
    changed[at]! ^= 1;
    errorOf(() => box.open(changed, CONTEXT));
  }
});

test('N14 what was never sealed is named by its place', () => {
  const box = createKeyBox([NEW]);

  for (const length of [0, 1, 2, 6, 20, 50]) {
    expect(errorOf(() => box.open(Buffer.alloc(length, 1), CONTEXT)).message).toContain(
      'ntf_tokens.dh_secret:default',
    );
  }
  expect(errorOf(() => box.open(SECRET, CONTEXT)).message).toBe(
    'ntf_tokens.dh_secret:default holds no sealed value',
  );
});

test('N14 unusable keys are refused, and no error holds a key', () => {
  const short = Buffer.from('too short a key');
  const cases: [KeyBoxKey[], string][] = [
    [[], 'there is no key'],
    [[{ id: 'a', key: short }], 'the key a must have 32 bytes and has 15'],
    [[NEW, { ...OLD, id: NEW.id }], 'there are two keys with the id 2026'],
    [[{ ...NEW, id: '' }], 'the id of a key must be 1 to 32 of A-Z a-z 0-9 . _ -'],
    [[{ ...NEW, id: `${short.toString()}==` }], 'the id of a key must be 1 to 32 of A-Z a-z 0-9 . _ -'],
  ];
  for (const [keys, message] of cases) expect(errorOf(() => createKeyBox(keys)).message).toBe(message);
});

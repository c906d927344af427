/** Bytes of the routers' own protocols, beyond what the recordings have. */
import fc from 'fast-check';
import { readAnswer, encodeCommand } from '../../../activities/subscription/router/words.ts';
import type { BinaryCommand } from '../../../activities/subscription/router/words.ts';
import {
  MalformedError,
  padBlock,
  unpadBlock,
  encodeTransmission,
  packTransmissions,
  roomOf,
  unpackTransmissions,
  PROTOCOLS,
} from '../../../activities/subscription/router/blocks.ts';
import { agreedVersion } from '../../../activities/subscription/router/connect.ts';
import { openBox, dhSecret, generateAuthKeys } from '../../../activities/subscription/router/keys.ts';
import { isRetried } from '../../../activities/subscription/router/ports.ts';
import { newCommand } from '../../../dev/stand-ins/subscription/application.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';

const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const ascii = (text: string): Buffer => Buffer.from(text, 'latin1');
const ID = Buffer.alloc(24, 7);
const KEY = Buffer.alloc(32, 9);
const sessionOf = (protocol: RouterProtocol, version = PROTOCOLS[protocol].newest) => ({
  facts: PROTOCOLS[protocol],
  version,
  id: Buffer.alloc(32, 1),
});

describe('boxes', () => {
  // The example that NaCl and all that followed it are tested with; its keys are those of RFC 7748, section 6.1.
  const secret = dhSecret(
    hex('8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a'),
    hex('5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb'),
  );
  const nonce = hex('69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37');
  const plain = hex(
    'be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc' +
      '3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb' +
      '48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705',
  );
  const sealed = hex(
    'f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0df' +
      'c17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368' +
      '517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5',
  );

  test('N19 a box is the one of NaCl', () => {
    expect(openBox(sealed, secret, nonce)).toEqual(plain);
  });

  test('N17 a key of another length or a point without a secret is refused', () => {
    expect(() => dhSecret(Buffer.alloc(31, 1), KEY)).toThrow('a raw key has 32 bytes, not 31');
    expect(() => dhSecret(Buffer.alloc(32), KEY)).toThrow();
  });

  test('N19 a box that was changed, or is of another secret, does not open', () => {
    const changed = Buffer.from(sealed);
    changed[20]! ^= 1;

    expect(openBox(changed, secret, nonce)).toBeUndefined();
    expect(openBox(sealed, KEY, nonce)).toBeUndefined();
    expect(openBox(sealed.subarray(0, 10), secret, nonce)).toBeUndefined();
  });
});

describe('packing', () => {
  const signer = generateAuthKeys().privateKey;
  const many = (protocol: RouterProtocol, version: number, command: BinaryCommand) => {
    const session = sessionOf(protocol, version);
    const one = () =>
      encodeTransmission(
        { correlationId: ID, entityId: ID, content: encodeCommand(command) },
        session,
        signer,
      );
    return packTransmissions(Array.from({ length: 150 }, one), session).map(({ count }) => count);
  };
  const nkey = { op: 'NKEY', notifierKey: KEY, recipientDhKey: KEY } as const;
  const snew = {
    ...({ op: 'SNEW', tokenId: ID, hosts: ['127.0.0.1'], port: 5_223, keyHash: KEY } as const),
    ...{ notifierId: ID, notifierPrivateKey: KEY },
  };

  test('N19 150 items are as many blocks as their bytes need', () => {
    // 16,384 - 19 bytes; a signed NKEY has 210 and its length, NDEL 119: 77 and 135 of them.
    expect(many('smp', 9, nkey)).toEqual([77, 73]);
    expect(many('smp', 9, { op: 'NDEL' })).toEqual([135, 15]);
    // Before version 7 the session's id of 33 bytes is in each: 66 and 106.
    expect(many('smp', 6, nkey)).toEqual([66, 66, 18]);
    // 512 - 19 bytes: four SCHK of 121, one SNEW of 247.
    expect(many('ntf', 2, { op: 'SCHK' })).toEqual([...Array<number>(37).fill(4), 2]);
    expect(many('ntf', 2, snew)).toEqual(Array(150).fill(1));
    expect(many('ntf', 1, { op: 'SCHK' })).toEqual(Array(150).fill(1));
  });

  test('N19 a block holds at most 255, and what is packed is found again, in its order', () => {
    fc.assert(
      fc.property(
        fc.constantFrom<['smp' | 'ntf', number]>(['smp', 9], ['smp', 6], ['ntf', 2], ['ntf', 1]),
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 600 }),
        ([protocol, version], contents) => {
          const session = sessionOf(protocol, version);
          const fitting = contents
            .map((bytes) => ({ correlationId: ID, entityId: Buffer.alloc(0), content: Buffer.from(bytes) }))
            .filter((one) => encodeTransmission(one, session).length <= roomOf(session));
          const blocks = packTransmissions(
            fitting.map((one) => encodeTransmission(one, session)),
            session,
          );
          const found = blocks.flatMap(({ content }) => {
            const block = padBlock(content, session.facts.blockBytes);
            return unpackTransmissions(unpadBlock(block), session);
          });

          expect(found).toEqual(fitting);
          expect(Math.max(0, ...blocks.map(({ count }) => count))).toBeLessThanOrEqual(255);
        },
      ),
      { numRuns: 50 },
    );
  });
});

test('N19 commands that no recording has are written as the protocol says', () => {
  const key = `,${hex('302a300506032b6570032100').toString('latin1')}${KEY.toString('latin1')}`;
  const dh = `,${hex('302a300506032b656e032100').toString('latin1')}${KEY.toString('latin1')}`;
  const open = { recipientKey: KEY, recipientDhKey: KEY, senderMaySecure: true };
  const create = { ...open, password: 'secret' };
  const made = (queue: typeof open, version: number) => newCommand(version, queue).toString('latin1');
  const text = (command: BinaryCommand) => encodeCommand(command).toString('latin1');

  expect(made(create, 9)).toBe(`NEW ${key}${dh}1\x06secretCT`);
  expect(made(create, 8)).toBe(`NEW ${key}${dh}A\x06secretC`);
  expect(made(create, 5)).toBe(`NEW ${key}${dh}A\x06secret`);
  expect(made(open, 9)).toBe(`NEW ${key}${dh}0CT`);
  expect(made(open, 8)).toBe(`NEW ${key}${dh}C`);
  expect(made(create, 4)).toBe(`NEW ${key}${dh}`);
  expect(text({ op: 'TRPL', device: { provider: 'AP', token: 'AB' } })).toBe('TRPL AP\x02ab');
  expect(text({ op: 'TCRN', minutes: 1_200 })).toBe('TCRN \x04\xb0');
  expect(() => text({ op: 'TVFY', code: Buffer.alloc(256) })).toThrow(RangeError);
});

describe('answers', () => {
  const read = (protocol: RouterProtocol, text: string) => readAnswer(protocol, ascii(text));
  const id = `\x18${ID.toString('latin1')}`;

  test('N19 what no recording has is read', () => {
    expect(read('ntf', `IDSUB ${id}`)).toEqual({ op: 'IDSUB', subscriptionId: ID });
    expect(read('ntf', 'SUB PENDING')).toEqual({ op: 'SUB', status: 'PENDING' });
    expect(read('ntf', 'SUB ERR \x04AUTH')).toEqual({ op: 'SUB', status: 'ERR AUTH' });
    expect(read('ntf', 'TKN INVALID,BAD')).toEqual({ op: 'TKN', status: 'INVALID,BAD' });
    expect(read('smp', `MSG ${id}body`)).toEqual({ op: 'MSG' });
    expect(read('smp', 'END')).toEqual({ op: 'END' });
    expect(read('smp', 'DELD')).toEqual({ op: 'DELD' });
  });

  test.each([
    ['smp', 'WHAT'],
    ['smp', 'TKN ACTIVE'],
    ['smp', 'OK more'],
    ['smp', ''],
    ['smp', `NID ${id}`],
    ['smp', `NID \x03abc,${'x'.repeat(44)}`],
    ['smp', `NID ${id},${'x'.repeat(44)}`],
    ['ntf', 'TKN SLEEPING'],
    ['ntf', 'SUB SOMEWHERE'],
    ['ntf', `IDSUB \x30${ID.toString('latin1')}`],
  ] as const)('N19 %s %j is nothing that a router says', (protocol, text) => {
    expect(() => read(protocol, text)).toThrow(MalformedError);
  });

  test.each([
    ['AUTH', 'AUTH'],
    ['QUOTA', 'QUOTA'],
    ['INTERNAL', 'INTERNAL'],
    ['BLOCK', 'BLOCK'],
    ['SESSION', 'SESSION'],
    ['CMD SYNTAX', 'CMD SYNTAX'],
    ['CMD the private key', 'CMD'],
    ['STORE disk full', 'STORE'],
    ['BLOCKED reason=spam', 'BLOCKED'],
    ['PROXY BROKER TIMEOUT', 'UNKNOWN'],
    ['whatever', 'UNKNOWN'],
    ['', 'UNKNOWN'],
  ])('N19 the error %j is permanent, and tells no words of the router', (said, known) => {
    for (const protocol of ['smp', 'ntf'] as const) {
      const answer = read(protocol, `ERR ${said}`);
      const error = 'error' in answer ? answer.error : undefined;

      expect([error!.code, error!.detail].filter(Boolean).join(' ')).toBe(known);
      expect(isRetried(error!)).toBe(false);
    }
  });
});

test('N19 the newest version of both sides is spoken, and none without a common one', () => {
  const agreed = (protocol: RouterProtocol, oldest: number, newest: number, hasAlpn = true) =>
    agreedVersion({ oldest, newest }, PROTOCOLS[protocol], hasAlpn);

  expect(agreed('smp', 6, 19)).toBe(9);
  expect(agreed('smp', 4, 8)).toBe(8);
  expect(agreed('smp', 4, 19, false)).toBe(6);
  expect(agreed('ntf', 1, 3)).toBe(2);
  expect(agreed('ntf', 1, 3, false)).toBe(1);
  expect(() => agreed('smp', 10, 19)).toThrow('it speaks versions 10 to 19');
  expect(() => agreed('smp', 1, 3)).toThrow('it speaks versions 1 to 3');
});

test('N19 an invalid block is refused', () => {
  const block = padBlock(ascii('content'), 512);
  const badPadding = Buffer.from(block);
  badPadding[511] = 0;

  expect(() => unpadBlock(Buffer.alloc(512, 0xff))).toThrow('longer than a block');
  expect(() => unpadBlock(badPadding)).toThrow('not padded');
  expect(unpadBlock(badPadding, true)).toEqual(ascii('content'));
  expect(() => padBlock(Buffer.alloc(511), 512)).toThrow(RangeError);
});

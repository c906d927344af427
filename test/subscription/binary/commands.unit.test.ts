/** The binary stand-ins against the documents of the protocol: how a connection begins, and commands. */
import { createHash, randomBytes, verify } from 'node:crypto';
import { seal } from '../../../dev/stand-ins/subscription/binary/box.ts';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import {
  chainOf,
  cut,
  join,
  newKeys,
  openBox,
  openClient,
  sealBox,
  sized,
  splitSignedKey,
  text,
} from './client.ts';
import type { BinaryRouters } from './routers.ts';
import { AUTH, OK, after, makeQueue, startBinaryRouters } from './routers.ts';

let routers: BinaryRouters;

beforeEach(async () => {
  routers = await startBinaryRouters();
});

afterEach(() => routers.stop());

describe('the cryptography', () => {
  test('N17 a box is the one of NaCl: its test vector, and the same both ways', () => {
    const hex = (value: string) => Buffer.from(value.replaceAll(/\s/g, ''), 'hex');
    const secret = hex('4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742');
    const nonce = hex('69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37');
    const plain = hex(`be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffc
      e5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb31
      0e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde
      048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f93776384864
      5e0705`);
    const sealed = hex(`f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce
      48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c972
      71d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae
      90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b3
      7973f622a43d14a6599b1f654cb45a74e355a5`);

    expect(seal(plain, secret, nonce)).toEqual(sealed);
    expect(sealBox(plain, secret, nonce)).toEqual(sealed);
    expect(openBox(sealed, secret, nonce)).toEqual(plain);
  });
});

describe('the beginning of a connection', () => {
  test('N17 the online certificate is signed by the offline one, whose fingerprint is in the address', async () => {
    const { socket, hello } = await routers.client('smp');
    const [online, offline] = chainOf(socket);

    expect(socket.getProtocol()).toBe('TLSv1.3');
    expect(socket.getCipher().standardName).toBe('TLS_CHACHA20_POLY1305_SHA256');
    expect(hello.chain).toEqual([online!.raw, offline!.raw]);
    expect(online!.verify(offline!.publicKey)).toBe(true);
    expect(offline!.verify(offline!.publicKey)).toBe(true);
    expect(createHash('sha256').update(offline!.raw).digest('base64url')).toBe(routers.smp.address.keyHash);
    const { signed, signature } = splitSignedKey(hello.signedKey);
    expect(verify(undefined, signed, online!.publicKey, signature)).toBe(true);
    expect(hello.sessionId).toEqual(socket.getFinished());
  });

  test('N17 the notification router leaves its certificates to TLS', async () => {
    const { socket, hello } = await routers.client('ntf');

    expect(hello.chain).toEqual([]);
    const { signed, signature } = splitSignedKey(hello.signedKey);
    expect(verify(undefined, signed, socket.getPeerX509Certificate()!.publicKey, signature)).toBe(true);
  });

  test('N17 without ALPN both speak their old versions', async () => {
    const messaging = await routers.client('smp', { withoutAlpn: true });
    const notification = await routers.client('ntf', { withoutAlpn: true });

    expect([messaging.hello.oldest, messaging.hello.newest]).toEqual([6, 6]);
    expect([notification.hello.oldest, notification.hello.newest]).toEqual([1, 1]);
    expect(await messaging.send({ content: 'PING' })).toEqual([text('PONG')]);
    expect(await notification.send({ content: 'PING' })).toEqual([text('PONG')]);
  });

  test.each([
    ['another version', { version: 11 }],
    ['too old a version', { version: 5 }],
    ['another router', { keyHash: randomBytes(32) }],
  ])('N17 a client that wants %s is cut off', async (_what, options) => {
    const client = await routers.client('smp', options);
    await client.closed;

    expect(client.blocks).toEqual([]);
  });

  test('N17 TLS 1.2 and other protocols are refused', async () => {
    const { address } = routers.smp;
    await expect(openClient(address, { protocol: 'smp', tls: { maxVersion: 'TLSv1.2' } })).rejects.toThrow();
    await expect(
      openClient(address, { protocol: 'smp', tls: { ALPNProtocols: ['smp/2'] } }),
    ).rejects.toThrow();
  });
});

describe('commands', () => {
  test('N17 a key of any kind authorizes its queue, and no other key does', async () => {
    const client = await routers.client('smp');
    for (const curve of ['ed25519', 'ed448', 'x25519'] as const) {
      const { recipientId: entity, recipient: keys } = await makeQueue(client, { recipient: newKeys(curve) });
      expect(
        await client.send(
          { content: 'NDEL', entity, keys },
          { content: 'NDEL', entity, keys: newKeys(curve) },
          { content: 'NDEL', entity: randomBytes(24), keys },
        ),
      ).toEqual([OK, AUTH, AUTH]);
    }
    const impostor = newKeys('ed25519');
    const content = join(
      'NEW ',
      sized(newKeys('ed25519').publicDer),
      sized(newKeys('x25519').publicDer),
      '0CF',
    );
    expect(await client.send({ content, keys: impostor })).toEqual([AUTH]);
  });

  test('N17 an authorization is good for its own session and command only', async () => {
    const [client, other] = [await routers.client('smp'), await routers.client('smp')];
    const { recipientId: entity, recipient: keys } = await makeQueue(client);
    const correlationId = randomBytes(24);
    const transmission = client.transmissionOf({ content: 'NDEL', entity, keys, correlationId });
    other.write(other.blockWith([transmission]));

    expect((await other.answerTo(correlationId)).content).toEqual(AUTH);
    const [authorization] = cut(transmission);
    const moved = join(sized(authorization), sized(correlationId), sized(entity), 'DEL');
    client.write(client.blockWith([moved]));
    expect((await client.answerTo(correlationId)).content).toEqual(AUTH);
  });

  test('N17 scenario 20 what is wrong with a command is said in one way', async () => {
    const keys = newKeys('ed25519');
    const [dh, entity] = [newKeys('x25519'), randomBytes(24)];
    const create = join('NEW ', sized(keys.publicDer), sized(dh.publicDer));
    const error = (detail: string) => text(`ERR CMD ${detail}`);
    const messaging = await routers.client('smp');
    expect(
      await messaging.send(
        { content: 'HELLO' },
        { content: '' },
        { content: 'NEW', keys },
        { content: join(create, '0C'), keys },
        { content: join(create, '0CFF'), keys },
        { content: join(create, '0XF'), keys },
        { content: join('NEW ', sized(dh.publicDer), sized(keys.publicDer), '0CF'), keys },
        { content: join(create, '0CF') },
        { content: join(create, '0CF'), keys, entity },
        { content: 'NDEL', keys },
        { content: 'PING', keys },
        { content: 'NDEL now', keys, entity },
      ),
    ).toEqual(
      ['UNKNOWN', 'UNKNOWN', 'SYNTAX', 'SYNTAX', 'SYNTAX', 'SYNTAX', 'SYNTAX']
        .concat(['NO_AUTH', 'HAS_AUTH', 'NO_AUTH', 'HAS_AUTH', 'SYNTAX'])
        .map(error),
    );
    const register = join('TNEW TAT', sized('ab'), sized(keys.publicDer), sized(dh.publicDer));
    const notification = await routers.client('ntf');
    const outcomes = [];
    for (const command of [
      { content: 'HELLO' },
      { content: 'TNEW', keys },
      { content: join(register, 'x'), keys },
      { content: register },
      { content: register, keys, entity },
      { content: join('TCRN ', Buffer.from([0])), keys, entity },
      { content: join('TNEW TXX', register.subarray(8)), keys },
    ]) {
      outcomes.push(...(await notification.send(command)));
    }
    expect(outcomes).toEqual(
      ['UNKNOWN', 'SYNTAX', 'SYNTAX', 'NO_AUTH', 'HAS_AUTH', 'SYNTAX', 'SYNTAX'].map(error),
    );
  });

  test('N17 before version 7 the session is sent, and another one is refused', async () => {
    const client = await routers.client('smp', { withoutAlpn: true });
    const recipient = newKeys('ed25519');
    const content = join('NEW ', sized(recipient.publicDer), sized(newKeys('x25519').publicDer), 'C');
    const [answer] = await client.send({ content, keys: recipient, correlationId: text('any') });
    const [, afterRecipient] = cut(after('IDS ', answer!));
    const [, afterSender] = cut(afterRecipient);
    expect(cut(afterSender)[1].length).toBe(0);

    const rest = join(sized(randomBytes(32)), sized('other'), sized(''), 'PING');
    client.write(client.blockWith([join(sized(''), rest)]));
    expect((await client.answerTo(text('other'))).content).toEqual(text('ERR SESSION'));
  });

  test('N17 a router with a password makes queues for who knows it', async () => {
    const closed = await startMessagingRouter({ password: 'secret' });
    const client = await openClient(closed.address, { protocol: 'smp' });
    await makeQueue(client, { password: join('1', sized('secret')) });
    await expect(makeQueue(client)).rejects.toThrow();
    await expect(makeQueue(client, { password: join('1', sized('other')) })).rejects.toThrow();
    await client.close();
    await closed.stop();

    expect(closed.queues().length).toBe(1);
  });

  test('N17 as many answers share a block as fit', async () => {
    const client = await routers.client('smp');
    const { recipientId: entity, recipient: keys } = await makeQueue(client);
    const content = () =>
      join('NKEY ', sized(newKeys('ed25519').publicDer), sized(newKeys('x25519').publicDer));
    const before = client.blocks.length;
    const answers = await client.send(
      ...Array.from({ length: 70 }, () => ({ content: content(), entity, keys })),
    );
    expect(new Set(answers.map((answer) => cut(after('NID ', answer))[0].toString('hex'))).size).toBe(70);
    // Each takes 2 + 125 bytes.
    expect(client.blocks.slice(before).map((block) => block[2])).toEqual([70]);

    const other = await routers.client('smp');
    const pings = await other.send(...Array.from({ length: 255 }, () => ({ content: 'PING' })));
    expect(new Set(pings.map(String))).toEqual(new Set(['PONG']));
    expect(other.blocks.map((block) => block[2])).toEqual([255]);
    expect(routers.smp.batches.at(-1)).toMatchObject({ size: 255, blocks: [255], version: 10 });
  });
});

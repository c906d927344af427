/** The binary stand-ins against the documents of the protocol: messages, notifications, and failures as they were told. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Agent, request } from 'undici';
import { holdAnswers } from '../../../dev/stand-ins/failure-scripts.ts';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { eventually } from '../../eventually.ts';
import { BROKEN, blockOf, cut, join, newKeys, openClient, openPadded, sized, text, wide } from './client.ts';
import type { BinaryRouters } from './routers.ts';
import { AUTH, OK, after, boxOf, makeNotifier, makeQueue, startBinaryRouters } from './routers.ts';

let routers: BinaryRouters;

beforeEach(async () => {
  routers = await startBinaryRouters();
});

afterEach(() => routers.stop());

describe('messages', () => {
  test('N17 only the key that secured a queue sends to it', async () => {
    const client = await routers.client('smp');
    const queue = await makeQueue(client, { flags: 'CT' });
    const [sender, other] = [newKeys('x25519'), newKeys('ed25519')];
    const send = { content: join('SEND T ', 'hello'), entity: queue.senderId };
    const secure = ({ publicDer }: typeof sender) => join('SKEY ', sized(publicDer));

    expect(await client.send(send, { ...send, keys: sender })).toEqual([OK, AUTH]);
    expect(
      await client.send(
        { content: secure(sender), entity: queue.senderId, keys: sender },
        { content: secure(sender), entity: queue.senderId, keys: sender },
        { content: secure(other), entity: queue.senderId, keys: other },
      ),
    ).toEqual([OK, OK, AUTH]);
    expect(await client.send(send, { ...send, keys: other }, { ...send, keys: sender })).toEqual([
      AUTH,
      AUTH,
      OK,
    ]);
    const closed = await makeQueue(client);
    const key = join('KEY ', sized(sender.publicDer));
    expect(
      await client.send(
        { content: secure(sender), entity: closed.senderId, keys: sender },
        { content: key, entity: closed.recipientId, keys: closed.recipient },
      ),
    ).toEqual([AUTH, OK]);
    expect(await client.send({ ...send, entity: closed.senderId })).toEqual([AUTH]);
  });

  test('N17 the recipient gets its messages one after the other', async () => {
    const client = await routers.client('smp');
    const queue = await makeQueue(client);
    const { recipientId: entity, recipient: keys } = queue;
    const send = (flag: string, body: string) => ({
      content: join(`SEND ${flag} `, body),
      entity: queue.senderId,
    });
    await client.send(send('T', 'first'), send('F', 'second'));
    const read = (answer: Buffer) => {
      const [id, sealed] = cut(after('MSG ', answer));
      const plain = openPadded(sealed, queue.secret, id);
      expect(Math.abs(Number(plain.readBigInt64BE()) - Date.now() / 1_000)).toBeLessThan(60);
      return { id, said: plain.subarray(8).toString('latin1') };
    };

    const [first] = await client.send({ content: 'SUB', entity, keys });
    expect(read(first!).said).toBe('T first');
    const acknowledge = (id: Buffer) => ({ content: join('ACK ', sized(id)), entity, keys });
    const [second] = await client.send(acknowledge(read(first!).id));
    expect(read(second!).said).toBe('F second');
    expect(await client.send(acknowledge(randomBytes(24)), acknowledge(read(second!).id))).toEqual([
      text('ERR NO_MSG'),
      OK,
    ]);
    await client.send(send('T', 'third'));
    expect(read((await client.event(entity, 'MSG ')).content).said).toBe('T third');
  });
});

describe('notifications', () => {
  test('N17 scenario 23 a notifier hears of messages, until another takes over or it is removed', async () => {
    const client = await routers.client('smp');
    const [first, second] = [await routers.client('smp'), await routers.client('smp', { version: 9 })];
    const queue = await makeQueue(client);
    const { notifierId: entity, keys, secret } = await makeNotifier(client, queue, newKeys('x25519'));
    const send = { content: 'SEND T hello', entity: queue.senderId };
    expect(await first.send({ content: 'NSUB', entity, keys })).toEqual([OK]);
    await client.send(send);

    const notified = after('NMSG ', (await first.event(entity, 'NMSG ')).content);
    const [meta, rest] = cut(notified.subarray(24));
    expect([meta.length, rest.length]).toEqual([144, 0]);
    const [messageId, seconds] = cut(openPadded(meta, secret, notified.subarray(0, 24)));
    expect(messageId.toString('base64url')).toBe(routers.smp.queues()[0]!.messages[0]!.messageId);
    expect(Math.abs(Number(seconds.readBigInt64BE()) - Date.now() / 1_000)).toBeLessThan(60);

    expect(await second.send({ content: 'NSUB', entity, keys })).toEqual([OK]);
    await first.event(entity, 'END');
    expect(await first.send({ content: 'NSUB', entity, keys })).toEqual([OK]);
    await second.event(entity, 'END');
    await client.send({ content: 'NDEL', entity: queue.recipientId, keys: queue.recipient });
    await first.event(entity, 'DELD');
    await client.send(send);
    expect(await first.send({ content: 'NSUB', entity, keys })).toEqual([AUTH]);
    expect(first.said.filter(({ content }) => content.toString('latin1').startsWith('NMSG')).length).toBe(1);
  });

  test('N17 before version 10 no client is told that a notifier is gone', async () => {
    const client = await routers.client('smp', { version: 9 });
    const queue = await makeQueue(client);
    const { notifierId: entity, keys } = await makeNotifier(client, queue);
    await client.send({ content: 'NSUB', entity, keys });
    await client.send({ content: 'NDEL', entity: queue.recipientId, keys: queue.recipient });
    await client.send({ content: 'PING' });

    expect(client.said.filter(({ correlationId }) => correlationId.length === 0)).toEqual([]);
  });

  test('N17 a message becomes a push that the device alone can read', async () => {
    const [messaging, notification] = [await routers.client('smp'), await routers.client('ntf')];
    const token = await routers.makeToken(notification);
    const queue = await makeQueue(messaging);
    const notifier = await makeNotifier(messaging, queue);
    const { port, keyHash } = routers.smp.address;
    const entity = await routers.subscribe(notification, token, notifier);
    const reaches = (status: string) =>
      eventually(`the subscription to be ${status}`, async () => {
        const [answer] = await notification.send({ content: 'SCHK', entity, keys: token.keys });
        return answer!.toString('latin1') === `SUB ${status}`;
      });
    await reaches('ACTIVE');
    await messaging.send({ content: 'SEND T hello', entity: queue.senderId });

    const push = await eventually('the push of the message', async () =>
      routers.sink.pushes.find(({ kind }) => kind === 'message'),
    );
    const list = openPadded(...boxOf(push.data.message!, push.data.nonce!, token.secret)).toString('latin1');
    const [place, seconds, nonce, meta] = list.split(' ');
    expect(place).toBe(`smp://${keyHash}=@127.0.0.1:${port}/${notifier.notifierId.toString('base64url')}`);
    expect(Math.abs(Number(seconds) - Date.now() / 1_000)).toBeLessThan(60);
    const [messageId] = cut(openPadded(...boxOf(meta!, nonce!, notifier.secret)));
    expect(messageId.toString('base64url')).toBe(routers.smp.queues()[0]!.messages[0]!.messageId);
    expect(Buffer.from(push.data.message!, 'base64url').length).toBe(3_072 + 16);

    await messaging.send({ content: 'DEL', entity: queue.recipientId, keys: queue.recipient });
    await reaches('DELETED');
    expect(await notification.send({ content: 'SDEL', entity, keys: token.keys })).toEqual([OK]);
  });

  test('N17 the session with a messaging router is opened again after it was away', async () => {
    const [messaging, notification] = [await routers.client('smp'), await routers.client('ntf')];
    const token = await routers.makeToken(notification);
    const notifier = await makeNotifier(messaging, await makeQueue(messaging));
    await routers.subscribe(notification, token, notifier);
    const reaches = (status: string) =>
      eventually(`the subscription to be ${status}`, async () =>
        routers.ntf.subscriptions().every((one) => one.status === status),
      );
    await reaches('ACTIVE');
    await routers.smp.stop();
    await reaches('INACTIVE');
    await routers.smp.start();
    await reaches('ACTIVE');
    routers.smp.loseState();
    await routers.smp.stop();
    await routers.smp.start();
    await reaches('AUTH');
  });
});

describe('a router that fails as it was told to', () => {
  test('N17 one command of a block, while the others are answered', async () => {
    const client = await routers.client('smp');
    const { recipientId: entity, recipient: keys } = await makeQueue(client);
    const ndel = { content: 'NDEL', entity, keys };
    const fail = (failure: Parameters<typeof routers.smp.fail>[0]['failure']) =>
      routers.smp.fail({ failure, subject: 'NDEL', times: 1 });
    fail({ kind: 'error', code: 'QUOTA' });
    fail({ kind: 'answer', answer: { op: 'PONG' } });
    fail({ kind: 'answer', answer: { op: 'WHAT' } });
    const late = holdAnswers();
    fail(late.failure);
    const answers = client.send(ndel, ndel, ndel, ndel, ndel, { content: 'PING' });
    await late.arrived;
    late.release();
    expect(await answers).toEqual([text('ERR QUOTA'), text('PONG'), text('WHAT'), OK, OK, text('PONG')]);
    fail({ kind: 'omit' });
    const correlationId = randomBytes(24);
    expect((await Promise.all([client.send({ content: 'PING' }), askSilently()]))[0]).toEqual([text('PONG')]);
    expect(client.said.some((said) => said.correlationId.equals(correlationId))).toBe(false);
    expect(routers.smp.calls.at(-1)).toMatchObject({ op: 'NDEL', answer: '-' });

    async function askSilently(): Promise<void> {
      client.write(client.blockWith([client.transmissionOf({ ...ndel, correlationId })]));
      await eventually('the command to arrive', async () => routers.smp.calls.at(-1)?.answer === '-');
    }
  });

  test('N17 silence lasts until it is healed, and ends the connection', async () => {
    const client = await routers.client('ntf');
    routers.ntf.fail({ failure: { kind: 'silence' }, subject: 'PING' });
    const answer = client.send({ content: 'PING' });
    await eventually('the command to arrive', async () => routers.ntf.calls.length === 1);
    routers.ntf.heal();

    expect(await answer).toEqual([BROKEN]);
    expect(await (await routers.client('ntf')).send({ content: 'PING' })).toEqual([text('PONG')]);
  });

  test.each(['reset', 'status'] as const)('N17 %s ends the connection', async (kind) => {
    const client = await routers.client('ntf');
    routers.ntf.fail({ failure: { kind, status: 503 }, subject: 'PING', times: 1 });

    expect(await client.send({ content: 'PING' })).toEqual([BROKEN]);
  });

  test('N17 any bytes in the place of a block, any text in the place of a transmission', async () => {
    const client = await routers.client('ntf');
    const hex = Buffer.alloc(512, 0xff).toString('hex');
    routers.ntf.fail({ failure: { kind: 'block', hex }, subject: 'PING', times: 1 });
    routers.ntf.fail({ failure: { kind: 'line', line: '\0\0\0junk' }, subject: 'PING', times: 1 });
    const blocks: Buffer[] = [];
    client.socket.removeAllListeners('data').on('data', (chunk: Buffer) => blocks.push(chunk));
    const ping = client.blockWith([client.transmissionOf({ content: 'PING' })]);
    client.write(ping);
    const all = (count: number) =>
      eventually('the block', async () => {
        const bytes = Buffer.concat(blocks);
        return bytes.length === count * 512 && bytes;
      });
    expect((await all(1)).toString('hex')).toBe(hex);
    client.write(ping);
    expect((await all(2)).subarray(512)).toEqual(
      blockOf(join(Buffer.from([1]), wide(text('\0\0\0junk'))), 512),
    );
  });
});

describe('stand-ins from outside', () => {
  test('N17 the same port answers requests over HTTP', async () => {
    const client = await routers.client('smp');
    await makeQueue(client);
    const { senderId } = routers.smp.queues()[0]!;
    const outside = new Agent({ connect: { rejectUnauthorized: false } });
    const ask = async (method: 'GET' | 'POST', place: string, body?: object) => {
      const answer = await request(`${routers.smp.url}${place}`, {
        method,
        dispatcher: outside,
        body: body ? JSON.stringify(body) : null,
      });
      return { status: answer.statusCode, body: await answer.body.json() };
    };

    expect(await ask('GET', '/_calls')).toMatchObject({ body: { calls: [{ op: 'NEW', answer: 'IDS' }] } });
    await ask('POST', '/_send', { senderId, body: 'hello' });
    expect(routers.smp.queues()[0]!.messages.length).toBe(1);
    await ask('POST', '/_lose');
    expect(await ask('GET', '/_state')).toMatchObject({ body: { queues: [] } });
    expect((await ask('GET', '/_other')).status).toBe(404);
    await outside.close();
  });

  test('N17 a data file keeps certificates and queues across processes', async () => {
    const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-routers-'));
    const options = { dataFile: path.join(dir, 'router.json') };
    const first = await startMessagingRouter(options);
    const client = await openClient(first.address, { protocol: 'smp' });
    const { recipientId: entity, recipient: keys } = await makeQueue(client);
    await client.close();
    await first.stop();
    const second = await startMessagingRouter(options);
    const again = await openClient(second.address, { protocol: 'smp' });
    const answers = await again.send({ content: 'DEL', entity, keys });
    await again.close();
    await second.stop();
    rmSync(dir, { recursive: true });

    expect(second.address.keyHash).toBe(first.address.keyHash);
    expect(answers).toEqual([OK]);
  });
});

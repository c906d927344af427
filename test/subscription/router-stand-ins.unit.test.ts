/** What the stand-in routers keep, push and record: the rules of real ones, as far as an agent or a device sees them. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Agent, request } from 'undici';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import { HTTPS } from '../../dev/stand-ins/subscription/https.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startNotificationRouter } from '../../dev/stand-ins/subscription/notification-router.ts';
import { eventually } from '../eventually.ts';
import type { NotifiedQueue, RouterAgent } from './router-agent.ts';
import { newDevice, newRegistration, outcomeOf, startRouterAgent, valueOf } from './router-agent.ts';
import { messagesIn, metaIn, newQueueKeys, pushesTo } from './routers.ts';

let agent: RouterAgent;

beforeEach(async () => {
  agent = await startRouterAgent();
});

afterEach(() => agent.stop());

describe('a token on its router', () => {
  test('N17 the same key with another secret is refused, another key is a second token', async () => {
    const registration = newRegistration();
    const { ref } = await agent.register(registration);

    expect(outcomeOf(await agent.tnew({ ...registration, dh: generateDhKeys() }))).toBe('NTF AUTH');
    const second = await agent.register({ ...registration, auth: generateAuthKeys() });
    expect(second.ref.tokenId).not.toBe(ref.tokenId);
    expect(agent.ntf.tokens().length).toBe(2);
  });

  test('N17 verifying one removes the others of the device, with their subscriptions', async () => {
    const device = newDevice();
    const first = await agent.register(newRegistration(device));
    await agent.activate(first);
    const subscriptionId = valueOf(await agent.snew(first, await agent.makeQueue('NEW')));
    const second = await agent.register(newRegistration(device));
    valueOf(await agent.notifications.verifyToken(second.ref, await agent.pushedCode(second, 2)));

    expect(outcomeOf(await agent.notifications.checkToken(first.ref))).toBe('NTF AUTH');
    expect(outcomeOf((await agent.notifications.checkSubscriptions(first.ref, [subscriptionId]))[0])).toBe(
      'NTF AUTH',
    );
    expect(agent.ntf.subscriptions()).toEqual([]);
  });

  test('N17 what was deleted is unknown, its subscriptions too', async () => {
    const token = await agent.register();
    await agent.activate(token);
    const subscriptionId = valueOf(await agent.snew(token, await agent.makeQueue('NEW')));
    valueOf(await agent.notifications.deleteToken(token.ref));

    expect(outcomeOf(await agent.notifications.deleteToken(token.ref))).toBe('NTF AUTH');
    expect(outcomeOf((await agent.notifications.checkSubscriptions(token.ref, [subscriptionId]))[0])).toBe(
      'NTF AUTH',
    );
  });

  test('N17 cron intervals below 20 minutes are refused; a push comes with each', async () => {
    const token = await agent.register();
    await agent.activate(token);
    for (const minutes of [1, 19]) {
      expect(outcomeOf(await agent.notifications.setCron(token.ref, minutes))).toBe('NTF QUOTA');
    }
    valueOf(await agent.notifications.setCron(token.ref, 20));
    agent.ntf.pushCron();
    const [push] = await eventually('the push to look for messages', async () => {
      const pushes = pushesTo(agent.sink, token.device.token, 'check');
      return pushes.length > 0 && pushes;
    });
    expect(push).toMatchObject({ isBackground: true, data: { checkMessages: true } });
    valueOf(await agent.notifications.setCron(token.ref, 0));
    expect(agent.ntf.tokens()[0]!.cronMinutes).toBe(0);
  });

  test.each([
    [400, 'BadDeviceToken', 'INVALID,BAD'],
    [400, 'TopicDisallowed', 'INVALID,TOPIC'],
    [410, 'ExpiredToken', 'INVALID,EXPIRED'],
    [410, 'Unregistered', 'INVALID,UNREGISTERED'],
  ])(
    'N17 the provider refuses with %i %s: the token is %s, until it is registered again',
    async (status, reason, expected) => {
      const registration = newRegistration();
      agent.sink.fail({ failure: { status, reason }, token: registration.device.token, times: 1 });
      const token = await agent.register(registration);
      await eventually('the refusal to be known', async () => agent.ntf.tokens()[0]!.status === expected);

      expect(valueOf(await agent.notifications.checkToken(token.ref))).toBe(expected);
      expect(outcomeOf(await agent.notifications.verifyToken(token.ref, randomBytes(32)))).toBe('NTF AUTH');
      await agent.register(registration);
      await eventually('the push to be accepted', async () => agent.ntf.tokens()[0]!.status === 'CONFIRMED');
    },
  );

  test('N17 a router before version 3 does not say why a token is invalid', async () => {
    const old = await startNotificationRouter({ transport: HTTPS, pushUrl: agent.sink.url, version: 2 });
    const { device, auth, dh } = newRegistration();
    const { tokenId } = valueOf(
      await agent.notifications.registerToken({
        address: old.address,
        device,
        auth,
        dhPublicKey: dh.publicKey,
      }),
    );
    old.setTokenStatus(tokenId, 'INVALID,BAD');

    const ref = { address: old.address, tokenId, privateKey: auth.privateKey };
    const status = await agent.notifications.checkToken(ref);
    await old.stop();
    expect(valueOf(status)).toBe('INVALID');
  });

  test('N17 nothing is pushed to the null provider', async () => {
    const token = await agent.register(newRegistration({ provider: 'AN', token: 'ab' }));
    const other = await agent.register();
    await agent.pushedCode(other);

    expect(pushesTo(agent.sink, 'ab', 'verification')).toEqual([]);
    expect(valueOf(await agent.notifications.checkToken(token.ref))).toBe('REGISTERED');
  });
});

describe('a subscription on its router', () => {
  test('N17 its status follows what the messaging router says', async () => {
    const token = await agent.register();
    await agent.activate(token);
    const queues = [await agent.makeQueue('NEW'), await agent.makeQueue('NEW'), await agent.makeQueue('NEW')];
    const ids = [];
    for (const queue of queues) ids.push(valueOf(await agent.snew(token, queue)));
    for (const id of ids) await agent.reaches(token, id, 'ACTIVE');
    const [taken, deleted] = queues;

    const taker = await agent.rawClient('smp');
    await taker.openSession();
    await taker.send({
      entity: taken!.notifierId,
      command: { op: 'NSUB' },
      privateKey: taken!.keys.notifier.privateKey,
    });
    await agent.reaches(token, ids[0]!, 'END');
    valueOf((await agent.messaging.deleteQueues([deleted!.ref]))[0]!.result);
    await agent.reaches(token, ids[1]!, 'DELETED');
    expect(outcomeOf((await agent.messaging.deleteQueues([deleted!.ref]))[0]!.result)).toBe('SMP AUTH');
    await agent.smp.stop();
    await agent.reaches(token, ids[2]!, 'INACTIVE');
    await agent.smp.start();
    await agent.reaches(token, ids[2]!, 'ACTIVE');
    expect(await agent.statusOf(token, ids[0]!)).toBe('END');
    agent.smp.loseState();
    await agent.smp.stop();
    await agent.smp.start();
    await agent.reaches(token, ids[2]!, 'AUTH');
  });

  test('N17 a messaging router that refuses at first is asked again within the same session', async () => {
    const token = await agent.register();
    await agent.activate(token);
    const [first, second] = [await agent.makeQueue('NEW'), await agent.makeQueue('NEW')];
    await agent.reaches(token, valueOf(await agent.snew(token, first)), 'ACTIVE');
    agent.smp.fail({
      failure: { kind: 'status', status: 503 },
      subject: `NSUB ${second.notifierId}`,
      times: 1,
    });
    const id = valueOf(await agent.snew(token, second));
    await agent.reaches(token, id, 'ACTIVE');
    valueOf((await agent.messaging.deleteQueues([second.ref]))[0]!.result);
    await agent.reaches(token, id, 'DELETED');
  });

  test('N17 a push holds the newest message of at most six queues, newest first', async () => {
    const token = await agent.register();
    await agent.activate(token);
    const queues: NotifiedQueue[] = [];
    for (let index = 0; index < 8; index++) {
      const queue = await agent.makeQueue('NEW');
      queues.push(queue);
      await agent.reaches(token, valueOf(await agent.snew(token, queue)), 'ACTIVE');
    }
    let last = '';
    for (const queue of [queues[0]!, ...queues]) {
      last = agent.smp.send(queue.senderId, 'hello').messageId;
      await agent.pushedMessage(token, queue, last);
    }

    const { push } = await agent.pushedMessage(token, queues[7]!, last);
    const newest = messagesIn(push, token.secret);
    expect(newest.length).toBe(6);
    expect(newest[0]!.notifierId).toBe(queues[7]!.notifierId);
    const times = newest.map(({ at }) => at);
    expect(times).toEqual([...times].sort((one, other) => other - one));
    expect(new Set(newest.map(({ notifierId }) => notifierId)).size).toBe(6);
  });

  test('N17 a message that arrived while the notification router was down is pushed when it is back', async () => {
    const token = await agent.register();
    await agent.activate(token);
    const queue = await agent.makeQueue('NEW');
    await agent.reaches(token, valueOf(await agent.snew(token, queue)), 'ACTIVE');
    await agent.ntf.stop();
    // A message into a connection that only seems to be there would be lost, as on any network.
    await eventually('the session to be over', async () => agent.smp.subscribed().length === 0);
    const { messageId } = agent.smp.send(queue.senderId, 'hello');
    expect(pushesTo(agent.sink, token.device.token, 'message')).toEqual([]);

    await agent.ntf.start();
    await agent.pushedMessage(token, queue, messageId);
    const quiet = agent.smp.send(queue.senderId, 'quiet', false);
    const loud = agent.smp.send(queue.senderId, 'loud');
    await agent.pushedMessage(token, queue, loud.messageId);
    const pushed = pushesTo(agent.sink, token.device.token, 'message').flatMap((push) =>
      messagesIn(push, token.secret).map((message) => metaIn(message, queue.secret)?.messageId),
    );
    expect(pushed).not.toContain(quiet.messageId);
  });
});

describe('stand-ins from outside', () => {
  let cleanUps: (() => unknown)[] = [];

  afterEach(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
    cleanUps = [];
  });

  test('N17 a data file keeps certificate and state across processes', async () => {
    const dir = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-routers-'));
    cleanUps.push(() => rmSync(dir, { recursive: true }));
    const dataFile = path.join(dir, 'router.json');
    const first = await startMessagingRouter({ transport: HTTPS, dataFile });
    const keys = newQueueKeys();
    valueOf(
      await agent.messaging.createQueue({
        address: first.address,
        recipientPublicKey: keys.recipient.publicKey,
        recipientPrivateKey: keys.recipient.privateKey,
      }),
    );
    await first.stop();
    const second = await startMessagingRouter({ transport: HTTPS, dataFile });
    cleanUps.push(() => second.stop());

    expect(second.address.keyHash).toBe(first.address.keyHash);
    expect(second.queues()).toEqual(first.queues());
    expect(second.queues().length).toBe(1);
  });

  test('N17 calls are read, failures set and messages sent over HTTP', async () => {
    const queue = await agent.makeQueue('NKEY');
    // Fetches from the stand-in, whose certificate is its own.
    const outside = new Agent({ connect: { rejectUnauthorized: false } });
    cleanUps.push(() => outside.close());
    const ask = async (method: 'GET' | 'POST', url: string, body?: object) => {
      const answer = await request(url, {
        method,
        dispatcher: outside,
        body: body ? JSON.stringify(body) : null,
      });
      return (await answer.body.json()) as Record<string, unknown>;
    };

    expect(await ask('GET', `${agent.smp.url}/_calls`)).toEqual({
      batches: [
        expect.objectContaining({ batch: 1, size: 1 }),
        expect.objectContaining({ batch: 2, size: 1 }),
      ],
      calls: [
        expect.objectContaining({ op: 'NEW', answer: 'IDS', batch: 1 }),
        expect.objectContaining({ op: 'NKEY', answer: 'NID', entity: queue.ref.recipientId, batch: 2 }),
      ],
    });
    expect(
      await ask('POST', `${agent.smp.url}/_send`, { senderId: queue.senderId, body: 'hello' }),
    ).toMatchObject({
      messageId: agent.smp.queues()[0]!.messages[0]!.messageId,
    });
    await ask('POST', `${agent.smp.url}/_fail`, {
      failure: { kind: 'error', code: 'QUOTA' },
      subject: 'NEW',
      times: 1,
    });
    await expect(agent.makeQueue('NEW')).rejects.toThrow('QUOTA');
    expect(agent.smp.calls.at(-1)).toMatchObject({ op: 'NEW', answer: 'ERR QUOTA' });
    await ask('POST', `${agent.smp.url}/_lose`);
    expect(await ask('GET', `${agent.smp.url}/_state`)).toEqual({ queues: [], subscribed: [] });

    const token = await agent.register();
    await agent.activate(token);
    const { tokenId } = token.ref;
    await ask('POST', `${agent.ntf.url}/_token`, { tokenId, status: 'EXPIRED' });
    expect(valueOf(await agent.notifications.checkToken(token.ref))).toBe('EXPIRED');
    const { pushes } = await ask('GET', `${agent.sink.url}/_pushes`);
    expect(pushes).toEqual([
      expect.objectContaining({ kind: 'verification', token: token.device.token, status: 200 }),
    ]);
  });
});

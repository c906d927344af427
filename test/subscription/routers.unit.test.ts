/**
 * The routers' side: scenarios 11 and 20 to 23 of the lifecycle. Those that an adapter can play are played through each
 * adapter, on stand-ins that speak as it does. Those with commands that none sends are played over HTTPS here, and in
 * binary/commands.unit.test.ts and binary/messages.unit.test.ts in the binary protocol.
 */
import { randomBytes } from 'node:crypto';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import { eventually } from '../eventually.ts';
import { toldTimeOf } from './pushes.ts';
import type { RouterAgent } from './router-agent.ts';
import { newDevice, newRegistration, outcomeOf, startRouterAgent, valueOf } from './router-agent.ts';
import type { QueueKeys } from './routers.ts';
import { base64url, codeOf, newQueueKeys, pushesTo } from './routers.ts';
import type { Way } from './ways.ts';
import { WAYS } from './ways.ts';

let agent: RouterAgent;

afterEach(() => agent.stop());

describe.each<[string, Way, ('NKEY' | 'NEW')[]]>([
  ['https', WAYS.https, ['NKEY', 'NEW']],
  // The versions that are spoken have no other way.
  ['binary', WAYS.binary, ['NKEY']],
])('%s', (name, way, ways) => {
  beforeEach(async () => {
    agent = await startRouterAgent(way);
  });

  test.each(ways)(
    `N17 scenario 21 ${name}: from registration to pushes of a replaced token, credentials by %s`,
    async (by) => {
      const registration = newRegistration();
      const first = valueOf(await agent.tnew(registration));
      const token = await agent.register(registration);
      expect(token.ref.tokenId).toBe(first.tokenId);
      expect(dhSecret(first.routerDhPublicKey, token.dh.privateKey)).toEqual(token.secret);
      const code = await agent.pushedCode(token, 2);
      const [firstPush] = pushesTo(agent.sink, token.device.token, 'verification');
      const secret = { address: agent.ntf.address, dhSecret: token.secret };
      expect(codeOf(agent.notifications, secret, firstPush!)).toEqual(code);

      expect(outcomeOf(await agent.notifications.verifyToken(token.ref, randomBytes(32)))).toBe('NTF AUTH');
      valueOf(await agent.notifications.verifyToken(token.ref, code));
      valueOf(await agent.notifications.verifyToken(token.ref, code));
      expect(valueOf(await agent.notifications.checkToken(token.ref))).toBe('ACTIVE');

      const queue = await agent.makeQueue(by);
      const subscriptionId = valueOf(await agent.snew(token, queue));
      await agent.reaches(token, subscriptionId, 'ACTIVE');
      const { messageId, at } = agent.smp.send(queue.senderId, 'hello');
      const { address } = agent.smp;
      expect(await agent.pushedMessage(token, queue, messageId)).toMatchObject({
        ...{ host: address.host, port: address.port, notifierId: queue.notifierId },
        meta: { messageId, at: toldTimeOf(address, at) },
      });
      expect(JSON.stringify(agent.sink.pushes)).not.toContain('hello');

      const device = newDevice();
      valueOf(await agent.notifications.replaceToken(token.ref, device));
      expect(valueOf(await agent.notifications.checkToken(token.ref))).toMatch(/^(REGISTERED|CONFIRMED)$/);
      const replaced = { ...token, device };
      await agent.activate(replaced);
      expect(valueOf(await agent.notifications.checkToken(token.ref))).toBe('ACTIVE');
      const again = agent.smp.send(queue.senderId, 'hello again');
      await agent.pushedMessage(replaced, queue, again.messageId);

      const other = await agent.makeQueue(by);
      await agent.smp.stop();
      const otherId = valueOf(await agent.snew(token, other));
      expect(await agent.statusOf(token, otherId)).not.toBe('ACTIVE');
      await agent.smp.start();
      await agent.reaches(token, otherId, 'ACTIVE');
      await agent.reaches(token, subscriptionId, 'ACTIVE');
      for (const one of [queue, other]) {
        await agent.pushedMessage(replaced, one, agent.smp.send(one.senderId, 'back').messageId);
      }
    },
  );

  test(`N17 scenario 22 ${name}: who may subscribe, and what a repetition answers`, async () => {
    const token = await agent.register();
    const queue = await agent.makeQueue('NKEY');
    expect(outcomeOf(await agent.snew(token, queue))).toBe('NTF AUTH');

    await agent.activate(token);
    const id = valueOf(await agent.snew(token, queue));
    expect(valueOf(await agent.snew(token, queue))).toBe(id);
    const otherKey = { ...queue, keys: { ...queue.keys, notifier: generateAuthKeys() } };
    expect(outcomeOf(await agent.snew(token, otherKey))).toBe('NTF AUTH');
    const otherToken = await agent.register();
    await agent.activate(otherToken);
    expect(outcomeOf(await agent.snew(otherToken, queue))).toBe('NTF AUTH');
    expect(agent.ntf.subscriptions().length).toBe(1);
  });

  test.each([
    ['NEW', false],
    ['REGISTERED', false],
    ['CONFIRMED', false],
    ['INVALID', true],
    ['INVALID,BAD', true],
    ['EXPIRED', true],
    ['ACTIVE', true],
  ] as const)(`N17 scenario 22 ${name}: a token that is %s may subscribe: %s`, async (status, isAllowed) => {
    const token = await agent.register();
    await agent.activate(token);
    agent.ntf.setTokenStatus(token.ref.tokenId, status);

    expect(outcomeOf(await agent.snew(token, await agent.makeQueue('NEW')))).toBe(
      isAllowed ? 'ok' : 'NTF AUTH',
    );
  });
});

describe('commands that no adapter sends', () => {
  beforeEach(async () => {
    agent = await startRouterAgent();
  });

  test('N17 scenario 20 a wrong command is told what is wrong with it', async () => {
    const client = await agent.rawClient('ntf');
    const { privateKey, publicKey } = generateAuthKeys();
    const key = base64url(publicKey);
    const register = {
      op: 'TNEW',
      device: newDevice(),
      authKey: key,
      dhKey: base64url(generateDhKeys().publicKey),
    };
    const entity = base64url(randomBytes(24));
    const answers = await client.send(
      { command: { op: 'WHAT' }, privateKey },
      { command: { op: 'TNEW' }, privateKey },
      { command: { ...register, more: 1 }, privateKey },
      { command: register },
      { command: register, entity, privateKey },
      { command: { op: 'TCHK' }, privateKey },
      { command: { op: 'TCHK' }, entity },
      { command: { op: 'PING' }, privateKey },
      { command: { op: 'PING' } },
      { command: { op: 'TCHK' }, entity, privateKey },
      { command: { op: 'TCRN', minutes: -1 }, entity, privateKey },
    );

    expect(
      answers.map(({ op, error }) => (error ? `${error.code} ${error.detail ?? ''}`.trim() : op)),
    ).toEqual([
      'CMD UNKNOWN',
      'CMD SYNTAX',
      'CMD SYNTAX',
      'CMD NO_AUTH',
      'CMD HAS_AUTH',
      'CMD NO_AUTH',
      'CMD NO_AUTH',
      'CMD HAS_AUTH',
      'PONG',
      'AUTH',
      'CMD SYNTAX',
    ]);
    expect(agent.ntf.tokens()).toEqual([]);
  });

  test('N17 scenario 23 notifiers: new ones, taken over and deleted', async () => {
    const queue = await agent.makeQueue('NEW');
    const own = { entity: queue.ref.recipientId, privateKey: queue.keys.recipient.privateKey };
    const owner = await agent.rawClient('smp');
    const [first, second] = await Promise.all([agent.rawClient('smp'), agent.rawClient('smp')]);
    await Promise.all([first.openSession(), second.openSession()]);
    const nkey = (keys: QueueKeys) => ({
      ...own,
      command: {
        op: 'NKEY',
        notifierKey: base64url(keys.notifier.publicKey),
        recipientDhKey: base64url(keys.dh.publicKey),
      },
    });
    const nsub = (entity: unknown, keys: QueueKeys) => ({
      entity: entity as string,
      command: { op: 'NSUB' },
      privateKey: keys.notifier.privateKey,
    });
    const [one] = await owner.send(nkey(queue.keys));
    const [two] = await owner.send(nkey(queue.keys));
    expect(one!.op).toBe('NID');
    expect(new Set([queue.notifierId, one!['notifierId'], two!['notifierId']]).size).toBe(3);
    expect((await first.send(nsub(one!['notifierId'], queue.keys)))[0]!.error?.code).toBe('AUTH');

    expect((await first.send(nsub(two!['notifierId'], queue.keys)))[0]!.op).toBe('OK');
    agent.smp.send(queue.senderId, 'one');
    await eventually('the first to hear of it', async () => first.events.length === 1);
    expect((await second.send(nsub(two!['notifierId'], queue.keys)))[0]!.op).toBe('OK');
    await eventually('END to the first', async () => first.events.at(-1)?.event === 'END');
    agent.smp.send(queue.senderId, 'two');
    await eventually('the second to hear of it', async () => second.events.length === 1);
    expect(first.events.map(({ event }) => event)).toEqual(['NMSG', 'END']);

    expect((await owner.send({ ...own, command: { op: 'NDEL' } }))[0]!.op).toBe('OK');
    expect((await owner.send({ ...own, command: { op: 'NDEL' } }))[0]!.op).toBe('OK');
    await eventually('DELD to the second', async () => second.events.at(-1)?.event === 'DELD');
    agent.smp.send(queue.senderId, 'three');
    const renewed = newQueueKeys();
    const [three] = await owner.send(nkey(renewed));
    expect((await second.send(nsub(three!['notifierId'], queue.keys)))[0]!.error?.code).toBe('AUTH');
    expect((await second.send(nsub(three!['notifierId'], renewed)))[0]!.op).toBe('OK');
    agent.smp.send(queue.senderId, 'four');
    await eventually('the new id to work', async () => second.events.at(-1)?.event === 'NMSG');
    expect(second.events.map(({ event }) => event)).toEqual(['NMSG', 'DELD', 'NMSG']);
  });

  test('N17 scenario 11 who is subscribed to a queue may not fetch from it, somebody else with its key may', async () => {
    const queue = await agent.makeQueue('NEW');
    const own = { entity: queue.ref.recipientId, privateKey: queue.keys.recipient.privateKey };
    const [subscribed, other] = await Promise.all([agent.rawClient('smp'), agent.rawClient('smp')]);
    await subscribed.openSession();
    expect((await subscribed.send({ ...own, command: { op: 'SUB' } }))[0]!.op).toBe('OK');
    const { messageId } = agent.smp.send(queue.senderId, 'hello');

    expect((await subscribed.send({ ...own, command: { op: 'GET' } }))[0]!.error).toEqual({
      code: 'CMD',
      detail: 'PROHIBITED',
    });
    expect((await other.send({ ...own, command: { op: 'GET' } }))[0]).toMatchObject({
      op: 'MSG',
      messageId,
      body: 'hello',
    });
    await eventually('the message in the session', async () =>
      subscribed.events.some(({ event }) => event === 'MSG'),
    );
    expect((await subscribed.send({ ...own, command: { op: 'ACK', messageId } }))[0]!.op).toBe('OK');
    expect((await other.send({ ...own, command: { op: 'GET' } }))[0]!.op).toBe('OK');
  });
});

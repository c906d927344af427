/**
 * The routers' side: scenarios 11 and 20 to 23 of the lifecycle. Those with commands that the adapter does
 * not send are in binary/commands.unit.test.ts and binary/messages.unit.test.ts.
 */
import { randomBytes } from 'node:crypto';
import { dhSecret, generateAuthKeys } from '../../activities/subscription/router/keys.ts';
import { toldTimeOf } from './pushes.ts';
import type { RouterAgent } from './router-agent.ts';
import { newDevice, newRegistration, outcomeOf, startRouterAgent, valueOf } from './router-agent.ts';
import { codeOf, pushesTo } from './routers.ts';

let agent: RouterAgent;

afterEach(() => agent.stop());

describe('scenarios', () => {
  beforeEach(async () => {
    agent = await startRouterAgent();
  });

  test('N17 scenario 21: from registration to pushes of a replaced token', async () => {
    const registration = newRegistration();
    const first = valueOf(await agent.tnew(registration));
    const token = await agent.register(registration);
    expect(token.ref.tokenId).toBe(first.tokenId);
    expect(dhSecret(first.routerDhPublicKey, token.dh.privateKey)).toEqual(token.secret);
    const code = await agent.pushedCode(token, 2);
    const [firstPush] = pushesTo(agent.sink, token.device.token, 'verification');
    expect(codeOf(token.secret, firstPush!)).toEqual(code);

    expect(outcomeOf(await agent.notifications.verifyToken(token.ref, randomBytes(32)))).toBe('NTF AUTH');
    valueOf(await agent.notifications.verifyToken(token.ref, code));
    valueOf(await agent.notifications.verifyToken(token.ref, code));
    expect(valueOf(await agent.notifications.checkToken(token.ref))).toBe('ACTIVE');

    const queue = await agent.makeQueue();
    const subscriptionId = valueOf(await agent.snew(token, queue));
    await agent.reaches(token, subscriptionId, 'ACTIVE');
    const { messageId, at } = agent.smp.send(queue.senderId, 'hello');
    const { address } = agent.smp;
    expect(await agent.pushedMessage(token, queue, messageId)).toMatchObject({
      ...{ host: address.host, port: address.port, notifierId: queue.notifierId },
      meta: { messageId, at: toldTimeOf(at) },
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

    const other = await agent.makeQueue();
    await agent.smp.stop();
    const otherId = valueOf(await agent.snew(token, other));
    expect(await agent.statusOf(token, otherId)).not.toBe('ACTIVE');
    await agent.smp.start();
    await agent.reaches(token, otherId, 'ACTIVE');
    await agent.reaches(token, subscriptionId, 'ACTIVE');
    for (const one of [queue, other]) {
      await agent.pushedMessage(replaced, one, agent.smp.send(one.senderId, 'back').messageId);
    }
  });

  test(`N17 scenario 22: who may subscribe, and what a repetition answers`, async () => {
    const token = await agent.register();
    const queue = await agent.makeQueue();
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
  ] as const)(`N17 scenario 22: a token that is %s may subscribe: %s`, async (status, isAllowed) => {
    const token = await agent.register();
    await agent.activate(token);
    agent.ntf.setTokenStatus(token.ref.tokenId, status);

    expect(outcomeOf(await agent.snew(token, await agent.makeQueue()))).toBe(isAllowed ? 'ok' : 'NTF AUTH');
  });
});

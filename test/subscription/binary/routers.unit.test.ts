/** The ports in the routers' own protocols: what is asked for each of their methods, and what becomes of the answers. */
import { randomBytes } from 'node:crypto';
import { generateAuthKeys, generateDhKeys } from '../../../activities/subscription/router/keys.ts';
import { padBlock } from '../../../activities/subscription/router/blocks.ts';
import {
  createMessagingRouters,
  createNotificationRouters,
  openVerification,
} from '../../../activities/subscription/router/routers.ts';
import { seal } from '../../../dev/stand-ins/subscription/binary/box.ts';
import { KNOWN_ID, ROUTER_DH_KEY, startAnsweringRouter } from './router.ts';
import { newDevice, outcomeOf } from '../router-agent.ts';

const id = KNOWN_ID.toString('base64url');
const insteadOf = (all: string | undefined) => (all === undefined ? {} : { all });

async function askMessaging(only?: string) {
  const router = await startAnsweringRouter('smp', insteadOf(only));
  const messaging = createMessagingRouters();
  const { address } = router;
  const [auth, dh] = [generateAuthKeys(), generateDhKeys()];
  const queues = [1, 2].map((userId) => ({
    ...{ address, userId, connId: 'c', recipientId: id, recipientPrivateKey: auth.privateKey },
  }));
  const requests = queues.map((queue) => ({ queue, auth, dh }));
  const results = [
    await messaging.ping(address),
    ...(await messaging.createNotifierKeys(requests)),
    ...(await messaging.deleteNotifierKeys(queues)),
  ];
  await messaging.close();
  await router.stop();
  return { results, ops: router.ops, sessions: router.sessions() };
}

async function askNotification(only?: string) {
  const router = await startAnsweringRouter('ntf', insteadOf(only));
  const notification = createNotificationRouters();
  const { address } = router;
  const auth = generateAuthKeys();
  const token = { address, tokenId: id, privateKey: auth.privateKey };
  const request = { messagingRouter: address, notifierId: id, notifierPrivateKey: auth.privateKey };
  const dhPublicKey = generateDhKeys().publicKey;
  const results = [
    await notification.ping(address),
    await notification.registerToken({ address, device: newDevice(), auth, dhPublicKey }),
    await notification.verifyToken(token, randomBytes(32)),
    await notification.checkToken(token),
    await notification.replaceToken(token, newDevice()),
    await notification.setCron(token, 20),
    ...(await notification.createSubscriptions(token, [request, request])),
    ...(await notification.checkSubscriptions(token, [id, id])),
    await notification.deleteSubscription(token, id),
    await notification.deleteToken(token),
  ];
  const none = [
    await notification.createSubscriptions(token, []),
    await notification.checkSubscriptions(token, []),
  ];
  await notification.close();
  await router.stop();
  return { results, none, ops: router.ops };
}

test('N19 a messaging router is asked as its port says, each user in a session of his own', async () => {
  const { results, ops, sessions } = await askMessaging();
  const ok = (value?: unknown) => ({ ok: true, value });
  const credentials = ok({ notifierId: id, routerDhPublicKey: ROUTER_DH_KEY });

  expect(results).toEqual([ok(), ...[credentials, credentials], ...Array.from({ length: 2 }, () => ok())]);
  expect(ops.sort()).toEqual('NDEL NDEL NKEY NKEY PING'.split(' '));
  expect(sessions).toBe(3);
});

test('N19 a notification router is asked as its port says', async () => {
  const { results, none, ops } = await askNotification();
  const ok = (value?: unknown) => ({ ok: true, value });

  expect(results).toEqual([
    ...[ok(), ok({ tokenId: id, routerDhPublicKey: ROUTER_DH_KEY }), ok(), ok('ACTIVE'), ok(), ok()],
    ...[ok(id), ok(id), ok('PENDING'), ok('PENDING'), ok(), ok()],
  ]);
  expect(none).toEqual([[], []]);
  expect(ops).toEqual('PING TNEW TVFY TCHK TRPL TCRN SNEW SNEW SCHK SCHK SDEL TDEL'.split(' '));
});

test('N19 a refusal is told as the router says it, an answer to another command as what it is', async () => {
  const [refusedSmp, refusedNtf] = [await askMessaging('ERR AUTH'), await askNotification('ERR QUOTA')];
  const [strangeSmp, strangeNtf] = [await askMessaging('END'), await askNotification('SUB NEW')];

  expect(new Set(refusedSmp.results.map(outcomeOf))).toEqual(new Set(['SMP AUTH']));
  expect(new Set(refusedNtf.results.map(outcomeOf))).toEqual(new Set(['NTF QUOTA']));
  expect(new Set(strangeSmp.results.map(outcomeOf))).toEqual(new Set(['BROKER UNEXPECTED']));
  expect(new Set(strangeNtf.results.map(outcomeOf))).toEqual(new Set(['BROKER UNEXPECTED', 'ok']));
});

test('N19 the code of a verification push is opened with the secret of its token', () => {
  const [secret, nonce, code] = [randomBytes(32), randomBytes(24), randomBytes(32)];
  const open = (content: Buffer, key = secret, nonceBytes = nonce) =>
    openVerification(key, nonceBytes.toString('base64'), seal(content, secret, nonce).toString('base64url'));

  // Routers of 2024 pad to 512 bytes, later ones to 3,072.
  const padded = padBlock(code, 512);
  expect(open(padded)).toEqual(code);
  expect(open(padBlock(code, 3_072))).toEqual(code);
  expect(open(Buffer.alloc(128, 0xff))).toBeUndefined();
  expect(open(Buffer.alloc(1))).toBeUndefined();
  expect(open(padded, randomBytes(32))).toBeUndefined();
  expect(open(padded, secret, randomBytes(12))).toBeUndefined();
});

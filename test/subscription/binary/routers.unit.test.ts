/**
 * The ports in the routers' own protocols: what is asked for each of their methods, what becomes of the answers, and what
 * `doctor` says about routers.
 */
import { randomBytes } from 'node:crypto';
import {
  generateAuthKeys,
  generateDhKeys,
  publicKeyDer,
} from '../../../activities/subscription/router/keys.ts';
import { padBlock, shortString } from '../../../activities/subscription/router/blocks.ts';
import {
  createMessagingRouters,
  createNotificationRouters,
  openVerification,
} from '../../../activities/subscription/router/routers.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import { diagnose } from '../../../cli/checks.ts';
import { UsageError } from '../../../cli/command.ts';
import { readRouter, routerChecks, routerTrial } from '../../../cli/subscription/check.ts';
import { seal } from '../../../dev/stand-ins/subscription/binary/box.ts';
import { newDevice, outcomeOf } from '../router-agent.ts';
import { startBinaryRouter } from './router.ts';

/** An id that every queue, token and subscription has. */
const KNOWN_ID = Buffer.alloc(24, 5);
const ROUTER_DH_KEY = generateDhKeys().publicKey;
const ascii = (text: string): Buffer => Buffer.from(text, 'ascii');
const DH = shortString(publicKeyDer('x25519', ROUTER_DH_KEY));

/** What a router answers to whom it knows, by the first word of a command; to the others, OK. */
const ANSWERS: Readonly<Record<string, Buffer>> = {
  NKEY: Buffer.concat([ascii('NID '), shortString(KNOWN_ID), DH]),
  TNEW: Buffer.concat([ascii('IDTKN '), shortString(KNOWN_ID), DH]),
  TCHK: ascii('TKN ACTIVE'),
  SNEW: Buffer.concat([ascii('IDSUB '), shortString(KNOWN_ID)]),
  SCHK: ascii('SUB PENDING'),
  PING: ascii('PONG'),
};

/** What ends with the test, the last one first. */
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** @param insteadOf what it answers to some commands, or with `all` to every one. */
async function startRouter(protocol: RouterProtocol, insteadOf: Readonly<Record<string, string>> = {}) {
  const ops: string[] = [];
  const router = await startBinaryRouter({
    protocol,
    onBlock(peer, transmissions) {
      for (const one of transmissions) {
        const [op = ''] = one.content.toString('latin1').split(' ', 1);
        ops.push(op);
        const text = insteadOf[op] ?? insteadOf['all'];
        peer.answer({ ...one, content: text === undefined ? (ANSWERS[op] ?? ascii('OK')) : ascii(text) });
      }
    },
  });
  ends.push(router.stop);
  return { ...router, ops };
}

const id = KNOWN_ID.toString('base64url');
const ok = (value?: unknown) => ({ ok: true, value });
const { privateKey } = generateAuthKeys();

async function askMessaging(insteadOf?: Record<string, string>) {
  const router = await startRouter('smp', insteadOf);
  const { address } = router;
  const messaging = createMessagingRouters();
  ends.push(messaging.close);
  const queues = [1, 2].map((userId) => ({
    ...{ address, userId, connId: 'c', recipientId: id, recipientPrivateKey: privateKey },
  }));
  const [auth, dh] = [generateAuthKeys(), generateDhKeys()];
  const results = [
    await messaging.ping(address),
    ...(await messaging.createNotifierKeys(queues.map((queue) => ({ queue, auth, dh })))),
    ...(await messaging.deleteNotifierKeys(queues)),
  ];
  return { results, ops: router.ops, sessions: router.sessions() };
}

async function askNotification(insteadOf?: Record<string, string>) {
  const { address, ops } = await startRouter('ntf', insteadOf);
  const notification = createNotificationRouters();
  ends.push(notification.close);
  const [auth, { publicKey: dhPublicKey }] = [generateAuthKeys(), generateDhKeys()];
  const token = { address, tokenId: id, privateKey };
  const request = { messagingRouter: address, notifierId: id, notifierPrivateKey: privateKey };
  const results = [
    await notification.ping(address),
    await notification.registerToken({ address, device: newDevice(), auth, dhPublicKey }),
    await notification.verifyToken(token, randomBytes(32)),
    await notification.checkToken(token),
    await notification.replaceToken(token, newDevice()),
    await notification.setCron(token, 20),
    ...(await notification.createSubscriptions(token, [request, request])),
    ...(await notification.createSubscriptions(token, [])),
    ...(await notification.checkSubscriptions(token, [id, id])),
    ...(await notification.checkSubscriptions(token, [])),
    await notification.deleteSubscription(token, id),
    await notification.deleteToken(token),
  ];
  return { results, ops };
}

test('N19 a messaging router is asked as its port says, each user in a session of his own', async () => {
  const { results, ops, sessions } = await askMessaging();
  const credentials = ok({ notifierId: id, routerDhPublicKey: ROUTER_DH_KEY });

  expect(results).toEqual([ok(), credentials, credentials, ok(), ok()]);
  expect(ops.sort()).toEqual('NDEL NDEL NKEY NKEY PING'.split(' '));
  expect(sessions).toBe(3);
});

test('N19 a notification router is asked as its port says', async () => {
  const { results, ops } = await askNotification();

  expect(results).toEqual([
    ...[ok(), ok({ tokenId: id, routerDhPublicKey: ROUTER_DH_KEY }), ok(), ok('ACTIVE'), ok(), ok()],
    ...[ok(id), ok(id), ok('PENDING'), ok('PENDING'), ok(), ok()],
  ]);
  expect(ops).toEqual('PING TNEW TVFY TCHK TRPL TCRN SNEW SNEW SCHK SCHK SDEL TDEL'.split(' '));
});

test('N19 a refusal is told as the router says it, an answer to another command as what it is', async () => {
  const outcomesOf = ({ results }: Awaited<ReturnType<typeof askMessaging | typeof askNotification>>) =>
    [...new Set(results.map(outcomeOf))].sort();

  expect(outcomesOf(await askMessaging({ all: 'ERR AUTH' }))).toEqual(['SMP AUTH']);
  expect(outcomesOf(await askNotification({ all: 'ERR QUOTA' }))).toEqual(['NTF QUOTA']);
  expect(outcomesOf(await askMessaging({ all: 'END' }))).toEqual(['BROKER UNEXPECTED']);
  expect(outcomesOf(await askNotification({ all: 'SUB NEW' }))).toEqual(['BROKER UNEXPECTED', 'ok']);
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

describe('doctor', () => {
  /** What it says with `--router`. */
  async function findingOf(protocol: RouterProtocol, insteadOf?: Record<string, string>) {
    const { address, ops } = await startRouter(protocol, insteadOf);
    const { host, port, keyHash } = address;
    const [finding] = await diagnose([
      routerTrial(await readRouter(`${protocol}://${keyHash}@${host}:${port}`)),
    ]);
    return { ...finding!, ops };
  }

  test.each<[RouterProtocol, string[]]>([
    ['smp', ['PING']],
    // Without a device, and deleted again.
    ['ntf', ['PING', 'TNEW', 'TDEL']],
  ])('N19 a router of %s is reached and answers, and nothing is left on it', async (protocol, ops) => {
    const detail = expect.stringMatching(/answers under the fingerprint [\w-]{43}$/) as string;
    expect(await findingOf(protocol)).toMatchObject({ status: 'ok', detail, ops });
  });

  test.each<[RouterProtocol, string, string, number]>([
    ['smp', 'PING', 'connect', 1],
    ['ntf', 'TNEW', 'create', 2],
    ['ntf', 'TDEL', 'delete', 3],
  ])('N19 %s: what fails at %s is named, and what was made is deleted', async (protocol, op, step, asked) => {
    const { status, detail, ops } = await findingOf(protocol, { [op]: 'ERR AUTH' });

    expect(status).toBe('error');
    expect(detail).toContain(`: ${step}, ${protocol.toUpperCase()} AUTH`);
    expect(ops).toHaveLength(asked);
  });

  test('N19 what is no address is wrong usage, and says why', async () => {
    const wrong = await readRouter('smp://secret@host').catch((error: unknown) => error);
    expect(wrong).toBeInstanceOf(UsageError);
    expect(wrong).toMatchObject({ message: 'the fingerprint has 32 bytes, in base64url' });
  });

  test('N16 N17 scenario 10: each notification router that does not work is named, and the step', async () => {
    const { address: working } = await startRouter('ntf');
    const { address: failing } = await startRouter('ntf', { TNEW: 'ERR INTERNAL' });
    const unknown = { ...working, keyHash: 'A'.repeat(43) };

    const name = 'notification routers';
    const connect = `127.0.0.1:${working.port}: connect, BROKER NETWORK, unknown CA`;
    expect(
      await diagnose([
        routerChecks([working]),
        routerChecks([failing, unknown]),
        routerChecks([working, unknown]),
      ]),
    ).toEqual([
      { name, status: 'ok', detail: `127.0.0.1:${working.port} can make a token and delete it` },
      {
        name,
        status: 'error',
        detail: `2 of 2 failed: 127.0.0.1:${failing.port}: create, NTF INTERNAL; ${connect}`,
        hint: expect.stringContaining('subscriptions status'),
      },
      { name, status: 'warn', detail: expect.stringContaining(connect), hint: expect.anything() },
    ]);
  });
});

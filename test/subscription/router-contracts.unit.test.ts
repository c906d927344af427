/** What goes over the wire toward routers, held against the OpenAPI files. */
import { X509Certificate, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { json } from 'node:stream/consumers';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import { fingerprintOf } from '../../activities/subscription/router/connection.ts';
import {
  createMessagingRouter,
  createNotificationRouter,
} from '../../activities/subscription/router/http.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import type { RouterProtocol } from '../../api/subscription/router-wire.ts';
import { NTF_COMMANDS, SMP_COMMANDS } from '../../api/subscription/router-wire.ts';
import { createLoopbackCertificate } from '../../dev/stand-ins/certificate.ts';
import { HTTPS } from '../../dev/stand-ins/subscription/https.ts';
import { eventually } from '../eventually.ts';
import { newDevice, outcomeOf } from './router-agent.ts';
import type { RawAnswer, RawCommand } from './routers.ts';
import { base64url, newQueueKeys, openRawClient, startRouters } from './routers.ts';

const ajv = new Ajv2020({ strict: false, allErrors: true });
const FILES = { smp: 'messaging-router-openapi.yaml', ntf: 'notification-router-openapi.yaml' } as const;
for (const [protocol, file] of Object.entries(FILES)) {
  const document = readFileSync(path.join(import.meta.dirname, '../../api/subscription', file), 'utf8');
  ajv.addSchema(parse(document) as object, protocol);
}

function problems(protocol: RouterProtocol, schema: string, value: unknown): string[] {
  const validate = ajv.getSchema(`${protocol}#/components/schemas/${schema}`);
  if (!validate) throw new Error(`no ${schema} in ${FILES[protocol]}`);
  if (validate(value) === true) return [];
  return (validate.errors ?? []).map((error) => `${error.instancePath} ${error.message}`);
}

interface Batch {
  blocks: { id: string; command: { op: string } }[][];
}

/** A router that takes every batch and refuses everything in it. */
async function startRefusingRouter(protocol: RouterProtocol) {
  const bodies: Batch[] = [];
  const { keyPem, certPem } = await createLoopbackCertificate();
  const max = protocol === 'smp' ? 17 : 3;
  const server = createServer({ key: keyPem, cert: certPem }, (request, response) => {
    if (request.method === 'GET') response.end(JSON.stringify({ protocol, min: 1, max }));
    else {
      void json(request).then((body) => {
        bodies.push(body as Batch);
        const answer = { op: 'ERR', error: { code: 'AUTH' } };
        const lines = (body as Batch).blocks.flat().map(({ id }) => JSON.stringify({ id, answer }));
        response.end(lines.join('\n'));
      });
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address: RouterAddress = {
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    keyHash: fingerprintOf(new X509Certificate(certPem).raw),
  };
  return {
    address,
    bodies,
    ops: () => bodies.flatMap(({ blocks }) => blocks.flat().map(({ command }) => command.op)),
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

const id = (): string => base64url(randomBytes(24));

test('N17 every command of the adapter to a messaging router is as its contract says', async () => {
  const router = await startRefusingRouter('smp');
  const messaging = createMessagingRouter();
  const { publicKey: recipientPublicKey, privateKey: recipientPrivateKey } = generateAuthKeys();
  const { address } = router;
  const queue = { address, userId: 1, connId: 'c', recipientId: id(), recipientPrivateKey };
  const notifier = {
    notifierPublicKey: generateAuthKeys().publicKey,
    recipientDhPublicKey: generateDhKeys().publicKey,
  };
  const results = [
    await messaging.createQueue({ address, recipientPublicKey, recipientPrivateKey }),
    await messaging.createQueue({ address, recipientPublicKey, recipientPrivateKey, notifier }),
    ...(await messaging.createNotifierKeys([{ queue, ...notifier }])).map(({ result }) => result),
    ...(await messaging.deleteNotifierKeys([queue])).map(({ result }) => result),
    ...(await messaging.deleteQueues([queue])).map(({ result }) => result),
  ];
  await Promise.all([messaging.close(), router.stop()]);

  expect(results.map(outcomeOf)).toEqual(Array(5).fill('SMP AUTH'));
  expect(router.ops()).toEqual(['NEW', 'NEW', 'NKEY', 'NDEL', 'DEL']);
  expect(router.bodies.flatMap((body) => problems('smp', 'Batch', body))).toEqual([]);
});

test('N17 every command of the adapter to a notification router is as its contract says', async () => {
  const router = await startRefusingRouter('ntf');
  const notifications = createNotificationRouter();
  const { address } = router;
  const auth = generateAuthKeys();
  const token = { address, tokenId: id(), privateKey: auth.privateKey };
  const device = newDevice();
  const request = { messagingRouter: address, notifierId: id(), notifierPrivateKey: auth.privateKey };
  const results = [
    await notifications.ping(address),
    await notifications.registerToken({ address, device, auth, dhPublicKey: generateDhKeys().publicKey }),
    await notifications.verifyToken(token, randomBytes(32)),
    await notifications.checkToken(token),
    await notifications.replaceToken(token, { ...device, token: device.token.toUpperCase() }),
    await notifications.setCron(token, 20),
    ...(await notifications.createSubscriptions(token, [request])),
    ...(await notifications.checkSubscriptions(token, [id()])),
    await notifications.deleteSubscription(token, id()),
    await notifications.deleteToken(token),
  ];
  await Promise.all([notifications.close(), router.stop()]);

  expect(results.map(outcomeOf)).toEqual(Array(10).fill('NTF AUTH'));
  expect(router.ops().sort()).toEqual(Object.keys(NTF_COMMANDS).sort());
  expect(router.bodies.flatMap((body) => problems('ntf', 'Batch', body))).toEqual([]);
});

describe('the stand-ins', () => {
  test('N17 what a messaging router answers and tells is as its contract says', async () => {
    const routers = await startRouters({ ntf: 0, transport: HTTPS });
    const client = await openRawClient('smp', routers.smp[0]!.address);
    const answers: RawAnswer[] = [];
    const ask = async (command: RawCommand): Promise<RawAnswer> => {
      const [answer] = await client.send(command);
      answers.push(answer!);
      return answer!;
    };
    await client.openSession();
    const { recipient, notifier, dh } = newQueueKeys();
    const recipientKey = base64url(recipient.publicKey);
    const keys = { notifierKey: base64url(notifier.publicKey), recipientDhKey: base64url(dh.publicKey) };
    const { privateKey } = recipient;
    const { recipientId, senderId } = await ask({ command: { op: 'NEW', recipientKey }, privateKey });
    const own = { entity: recipientId as string, privateKey };
    const { notifierId } = await ask({ ...own, command: { op: 'NKEY', ...keys } });
    await ask({ entity: notifierId as string, command: { op: 'NSUB' }, privateKey: notifier.privateKey });
    await ask({ ...own, command: { op: 'SUB' } });
    await ask({ entity: senderId as string, command: { op: 'SEND', notify: true, body: 'hello' } });
    await eventually('message and notification', async () => client.events.length === 2);
    const [message] = routers.smp[0]!.queues()[0]!.messages;
    await ask({ ...own, command: { op: 'GET' } });
    await ask({ ...own, command: { op: 'ACK', messageId: message!.messageId } });
    await ask({ ...own, command: { op: 'NDEL' } });
    await ask({ ...own, command: { op: 'DEL' } });
    await ask({ command: { op: 'PING' } });
    await ask({ command: { op: 'NEW', recipientKey, notifier: keys }, privateKey });
    await ask({ command: { op: 'WHAT' } });
    await eventually('the end of the notifier', async () =>
      client.events.some(({ event }) => event === 'DELD'),
    );
    await client.close();
    const ops = new Set(routers.smp[0]!.calls.map(({ op }) => op));
    await routers.stop();

    expect(Object.keys(SMP_COMMANDS).filter((op) => !ops.has(op))).toEqual([]);
    expect(answers.flatMap((answer) => problems('smp', 'Answer', answer))).toEqual([]);
    expect(client.events.flatMap((event) => problems('smp', 'SessionEvent', event))).toEqual([]);
    expect(new Set(answers.map(({ op }) => op))).toEqual(new Set(['IDS', 'NID', 'OK', 'PONG', 'ERR']));
  });

  test('N17 what a notification router answers is as its contract says', async () => {
    const routers = await startRouters({ smp: 0, transport: HTTPS });
    const client = await openRawClient('ntf', routers.ntf[0]!.address);
    const auth = generateAuthKeys();
    const { privateKey } = auth;
    const [made] = await client.send({
      command: {
        op: 'TNEW',
        device: newDevice(),
        authKey: base64url(auth.publicKey),
        dhKey: base64url(generateDhKeys().publicKey),
      },
      privateKey,
    });
    const token = { entity: made!['tokenId'] as string, privateKey };
    const [{ code } = { code: '' }] = routers.ntf[0]!.tokens();
    const snew = {
      op: 'SNEW',
      tokenId: token.entity,
      router: { ...routers.ntf[0]!.address, port: 1 },
      notifierId: id(),
      notifierPrivateKey: base64url(privateKey),
    };
    const answers = [
      made!,
      ...(await client.send(
        { ...token, command: { op: 'TVFY', code } },
        { ...token, command: { op: 'TCHK' } },
        { command: snew, privateKey },
        { ...token, command: { op: 'TCRN', minutes: 1 } },
        { command: { op: 'PING' } },
        { command: { op: 'TCHK' } },
      )),
    ];
    const subscription = { entity: answers[3]!['subscriptionId'] as string, privateKey };
    answers.push(...(await client.send({ ...subscription, command: { op: 'SCHK' } })));
    await client.close();
    await routers.stop();

    expect(answers.map(({ op }) => op)).toEqual(['IDTKN', 'OK', 'TKN', 'IDSUB', 'ERR', 'PONG', 'ERR', 'SUB']);
    expect(answers.flatMap((answer) => problems('ntf', 'Answer', answer))).toEqual([]);
  });
});

/**
 * What official routers of 2022 and 2024 answered to recorded requests, and what the stand-ins answer to the same:
 * equal to the byte, once each id and key that a router makes up stands for the other's.
 */
import { once } from 'node:events';
import { connect } from 'node:tls';
import {
  Reader,
  createBlockReader,
  encodeTransmission,
  packTransmissions,
  padBlock,
  unpadBlock,
  unpackTransmissions,
} from '../../../activities/subscription/router/blocks.ts';
import { encodeHello, readHello } from '../../../activities/subscription/router/connect.ts';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { startNotificationRouter } from '../../../dev/stand-ins/subscription/notification-router.ts';
import { startPushSink } from '../../../dev/stand-ins/subscription/push-sink.ts';
import { eventually } from '../../eventually.ts';
import { loadTranscript } from './recordings.ts';

/** Of an answer that makes something up, how many ids and keys there are. */
const MADE_UP: Readonly<Record<string, number>> = { IDS: 3, NID: 2, IDTKN: 2, IDSUB: 1 };

function madeUpIn(content: Buffer): Buffer[] {
  const [operation = ''] = content.toString('latin1').split(' ', 1);
  const reader = new Reader(content.subarray(operation.length + 1));
  return Array.from({ length: MADE_UP[operation] ?? 0 }, () => reader.shortString(operation));
}

/** The versions, how many certificates, and whether a signed key follows. */
function formOf(hello: Buffer, protocol: 'smp' | 'ntf') {
  const { oldest, newest, sessionId } = readHello(hello);
  const rest = new Reader(hello.subarray(4 + 1 + sessionId.length));
  const hasKey = !rest.isAtEnd;
  const certificates = hasKey && protocol === 'smp' ? rest.byte('certificates') : 0;
  for (let index = 0; index < certificates; index += 1) rest.longString('certificate');
  if (hasKey) rest.longString('signed key');
  rest.end('the hello');
  return { oldest, newest, certificates, hasKey };
}

test.each(['smp-v9', 'smp-v4', 'ntf-v2', 'ntf-v1'])(
  'N17 a stand-in answers each request of %s as the official router did, to the byte',
  async (name) => {
    const transcript = loadTranscript(name);
    const { protocol, facts, version, finished, keyHash, blocks, hello, hasAlpn, rawKey } = transcript;
    const sink = await startPushSink();
    // No provider takes the pushes, as when the transcripts were recorded.
    sink.fail({ failure: { status: 503, reason: 'ServiceUnavailable' } });
    const options = { version: readHello(hello).newest, oldestVersion: readHello(hello).oldest };
    const router =
      protocol === 'smp'
        ? await startMessagingRouter(options)
        : await startNotificationRouter({ ...options, pushUrl: sink.url });
    const { host, port } = router.address;
    const socket = connect({
      ...{ host, port, rejectUnauthorized: false },
      ...(hasAlpn ? { ALPNProtocols: [facts.alpn] } : {}),
    });
    try {
      const said: Buffer[] = [];
      socket.on(
        'data',
        createBlockReader(facts.blockBytes, (block) => said.push(Buffer.from(block))),
      );
      await once(socket, 'secureConnect');
      const answers = (count: number) =>
        eventually('as many blocks', async () => said.length >= count && said.splice(0));
      const [ownHello] = await answers(1);
      expect(formOf(unpadBlock(ownHello!, true), protocol)).toEqual(formOf(hello, protocol));
      const session = { facts, version, id: socket.getFinished()! };
      expect(readHello(unpadBlock(ownHello!, true)).sessionId).toEqual(session.id);

      const ownKeyHash = Buffer.from(router.address.keyHash, 'base64url');
      const replaced: [theirs: Buffer, ours: Buffer][] = [
        [keyHash, ownKeyHash],
        [finished, session.id],
      ];
      const ours = (bytes: Buffer): Buffer =>
        Buffer.from(
          replaced.reduce(
            (hex, [theirs, mine]) => hex.replaceAll(theirs.toString('hex'), mine.toString('hex')),
            bytes.toString('hex'),
          ),
          'hex',
        );
      const theirSession = transcript.session;
      socket.write(padBlock(encodeHello(version, ownKeyHash), facts.blockBytes));
      // After both hellos.
      for (let index = 2; index < blocks.length;) {
        const request = blocks[index]!.content;
        const transmissions = unpackTransmissions(request, theirSession).map((one) => {
          // Signatures by Ed25519 are always the same, so they say whose they are.
          const signer = [rawKey('recipient'), rawKey('other')].find((key) =>
            request.includes(encodeTransmission(one, theirSession, key)),
          );
          const { correlationId, entityId, content } = one;
          const mine = { correlationId, entityId: ours(entityId), content: ours(content) };
          return encodeTransmission(mine, session, signer);
        });
        for (const { content } of packTransmissions(transmissions, session))
          socket.write(padBlock(content, facts.blockBytes));
        const expected: Buffer[] = [];
        for (index += 1; blocks[index]?.from === 'router'; index += 1) expected.push(blocks[index]!.content);
        const received = await answers(expected.length);
        const made = (contents: Buffer[], of: typeof session) =>
          contents.flatMap((content) =>
            unpackTransmissions(content, of).flatMap((one) => madeUpIn(one.content)),
          );
        const mine = made(
          received.map((block) => unpadBlock(block)),
          session,
        );
        const others = made(expected, theirSession);
        expect(mine.map(({ length }) => length)).toEqual(others.map(({ length }) => length));
        replaced.push(...others.map((one, at): [Buffer, Buffer] => [one, mine[at]!]));
        expect(received).toEqual(expected.map((content) => padBlock(ours(content), facts.blockBytes)));
      }
    } finally {
      socket.destroy();
      await router.stop();
      await sink.stop();
    }
  },
);

/**
 * What official routers of 2022 and 2024 answered to recorded requests, and what the stand-ins answer to the same:
 * equal to the byte, once each id and key that a router makes up stands for the other's.
 */
import { createPublicKey, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { startMessagingRouter } from '../../../dev/stand-ins/subscription/messaging-router.ts';
import { startNotificationRouter } from '../../../dev/stand-ins/subscription/notification-router.ts';
import type { PushSinkStandIn } from '../../../dev/stand-ins/subscription/push-sink.ts';
import { startPushSink } from '../../../dev/stand-ins/subscription/push-sink.ts';
import { eventually } from '../../eventually.ts';
import type { BinaryClient, Keys, Protocol } from './client.ts';
import {
  BLOCK,
  blockOf,
  cut,
  join,
  keysFrom,
  openClient,
  readHello,
  sized,
  splitSignedKey,
} from './client.ts';

interface Transcript {
  protocol: Protocol;
  alpn: string | false;
  certificateChain: string[];
  keyHash: string;
  keys: Record<'recipient' | 'notifier' | 'dh' | 'other', string>;
  blocks: { from: 'router' | 'client'; hex: string }[];
}

const transcriptOf = (name: string): Transcript =>
  JSON.parse(
    readFileSync(path.join(import.meta.dirname, 'recordings', `${name}.json`), 'utf8'),
  ) as Transcript;

interface Recorded {
  authorization: Buffer;
  correlationId: Buffer;
  entity: Buffer;
  content: Buffer;
  authorized: Buffer;
}

let sink: PushSinkStandIn;
let cleanUps: (() => Promise<unknown>)[] = [];

beforeEach(async () => {
  sink = await startPushSink();
  // No provider takes the pushes, as when the transcripts were recorded.
  sink.fail({ failure: { status: 503, reason: 'ServiceUnavailable' } });
});

afterEach(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
  cleanUps = [];
  await sink.stop();
});

describe.each(['smp-v9', 'smp-v4', 'ntf-v2', 'ntf-v1'])('the transcript %s', (name) => {
  const { protocol, alpn, blocks, keyHash, keys, certificateChain } = transcriptOf(name);
  const contents = blocks.map(({ hex }) => Buffer.from(hex, 'hex'));
  const hello = readHello(protocol, contents[0]!);
  const version = hello.newest;
  const isBatched = version >= (protocol === 'smp' ? 4 : 2);
  const isImplied = version >= (protocol === 'smp' ? 7 : 2);

  function transmissionsIn(content: Buffer): Buffer[] {
    if (!isBatched) return [content];
    let rest = content.subarray(1);
    return Array.from({ length: content[0]! }, () => {
      const [transmission, after] = cut(rest, 2);
      rest = after;
      return transmission;
    });
  }

  function read(transmission: Buffer): Recorded {
    const [authorization, sent] = cut(transmission);
    const [, rest] = isImplied ? [undefined, sent] : cut(sent);
    const [correlationId, afterId] = cut(rest);
    const [entity, content] = cut(afterId);
    return {
      authorization,
      correlationId,
      entity,
      content,
      authorized: isImplied ? join(sized(hello.sessionId), sent) : sent,
    };
  }

  /** Whose signature it is. */
  function signerOf({ authorization, authorized }: Recorded): Keys | undefined {
    if (authorization.length === 0) return undefined;
    const signer = Object.values(keys)
      .map(keysFrom)
      .filter(({ privateKey }) => privateKey.asymmetricKeyType === 'ed25519')
      .find(({ publicDer }) => {
        const key = createPublicKey({ key: publicDer, format: 'der', type: 'spki' });
        return verify(undefined, authorized, key, authorization);
      });
    if (!signer) throw new Error('no key has signed it');
    return signer;
  }

  async function start(): Promise<BinaryClient> {
    const options = { version, oldestVersion: hello.oldest };
    const router =
      protocol === 'smp'
        ? await startMessagingRouter(options)
        : await startNotificationRouter({ ...options, pushUrl: sink.url });
    cleanUps.push(() => router.stop());
    const client = await openClient(router.address, { protocol, withoutAlpn: alpn === false });
    cleanUps.push(() => client.close());
    replaced(Buffer.from(keyHash, 'hex'), Buffer.from(router.address.keyHash, 'base64url'));
    replaced(hello.sessionId, client.hello.sessionId);
    return client;
  }

  /** What the official router made up, and what stands for it here. */
  let replacements: [theirs: string, ours: string][] = [];
  const replaced = (theirs: Buffer, ours: Buffer): void => {
    expect(ours.length).toBe(theirs.length);
    replacements.push([theirs.toString('hex'), ours.toString('hex')]);
  };
  const ours = (bytes: Buffer): Buffer =>
    Buffer.from(
      replacements.reduce((hex, [theirs, mine]) => hex.replaceAll(theirs, mine), bytes.toString('hex')),
      'hex',
    );

  beforeEach(() => {
    replacements = [];
  });

  test('N17 the hello offers the same versions, in the same form', async () => {
    const client = await start();
    const mine = client.hello;

    expect([mine.oldest, mine.newest]).toEqual([hello.oldest, hello.newest]);
    expect(mine.sessionId).toEqual(client.socket.getFinished());
    expect(mine.chain.length).toBe(hello.chain.length);
    expect(hello.chain.map((certificate) => certificate.toString('hex'))).toEqual(
      protocol === 'smp' && version >= 7 ? certificateChain : [],
    );
    expect(mine.signedKey.length > 0).toBe(hello.signedKey.length > 0);
    if (hello.signedKey.length > 0) {
      const [ours, theirs] = [splitSignedKey(mine.signedKey), splitSignedKey(hello.signedKey)];
      const beforeRawKey = ({ signed }: typeof ours) => signed.subarray(0, -32);
      expect(beforeRawKey(ours)).toEqual(beforeRawKey(theirs));
    }
    expect(mine.rest.length).toBe(0);
  });

  test('N17 each request is answered as it was by the official router, to the byte', async () => {
    const client = await start();
    // After both hellos.
    for (let index = 2; index < blocks.length;) {
      const requests = transmissionsIn(contents[index]!).map(read);
      client.write(
        client.blockWith(
          requests.map((request) => {
            const { correlationId, entity, content } = request;
            const keysOfSigner = signerOf(request);
            return client.transmissionOf({
              correlationId,
              entity: ours(entity),
              content: ours(content),
              ...(keysOfSigner ? { keys: keysOfSigner } : {}),
            });
          }),
        ),
      );
      const expected: Buffer[] = [];
      for (index += 1; blocks[index]?.from === 'router'; index += 1) expected.push(contents[index]!);
      const answers = await eventually(
        'as many blocks as there were',
        async () => client.blocks.length >= expected.length && client.blocks.splice(0),
      );
      learn(expected, answers);
      expect(answers).toEqual(expected.map((content) => blockOf(ours(content), BLOCK[protocol])));
    }
  });

  /** Takes the ids and keys that the routers made up out of answers that correspond. */
  function learn(theirs: Buffer[], mine: Buffer[]): void {
    const made = (all: Buffer[]) =>
      all.flatMap((content) =>
        transmissionsIn(content).flatMap((transmission) => madeUpIn(read(transmission).content)),
      );
    const ourValues = made(mine.map((block) => cut(block, 2)[0]));
    for (const [index, value] of made(theirs).entries()) replaced(value, ourValues[index]!);
  }

  function madeUpIn(content: Buffer): Buffer[] {
    const [operation] = content.toString('latin1').split(' ', 1);
    const count = { IDS: 3, NID: 2, IDTKN: 2, IDSUB: 1 }[operation!] ?? 0;
    let rest = content.subarray(operation!.length + 1);
    return Array.from({ length: count }, () => {
      const [value, after] = cut(rest);
      rest = after;
      return value;
    });
  }
});

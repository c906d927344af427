/** What official routers were asked is made again to the byte, and what they answered is read. */
import type { BinaryAnswer, BinaryCommand } from '../../../activities/subscription/router/words.ts';
import { readAnswer, encodeCommand } from '../../../activities/subscription/router/words.ts';
import {
  agreedVersion,
  distrustOf,
  encodeHello,
  readHello,
} from '../../../activities/subscription/router/connect.ts';
import {
  Reader,
  encodeTransmission,
  packTransmissions,
  unpackTransmissions,
} from '../../../activities/subscription/router/blocks.ts';
import { dhSecret } from '../../../activities/subscription/router/keys.ts';
import { newCommand, readIds } from '../../../dev/stand-ins/subscription/application.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';
import type { Transcript } from './recordings.ts';
import { loadTranscript, publicKeyOf } from './recordings.ts';

const NOTHING = Buffer.alloc(0);

/** A request of the recording: what it was about, and who signed it. */
interface Said {
  /** As bytes, when the protocol does not have it. */
  command: BinaryCommand | Buffer;
  entity?: Buffer;
  /** Raw. */
  key?: Buffer;
}

/** Version 4 and 1 were recorded with the shortest correlation ids, the others with ids of 24 bytes. */
function correlationId({ version, facts }: Transcript, number: number): Buffer {
  const text = String(number);
  return Buffer.from(version < facts.impliedSession ? text : text.padEnd(24), 'ascii');
}

type Answer = BinaryAnswer | { op: 'IDS'; recipientId: Buffer; routerDhKey: Buffer };

/** Applications make queues, so they read the answer to that. */
function answerIn(content: Buffer, protocol: RouterProtocol): Answer {
  const ids = readIds(content);
  if (!ids) return readAnswer(protocol, content);
  const recipientId = Buffer.from(ids.recipientId, 'base64url');
  return { op: 'IDS', recipientId, routerDhKey: ids.routerDhPublicKey };
}

/** Every answer, by its correlation id. */
function answersOf(transcript: Transcript): Map<string, { answer: Answer; entity: Buffer }> {
  return new Map(
    transcript.answers.flatMap((block) =>
      unpackTransmissions(block, transcript.session).map(({ correlationId: id, entityId, content }) => [
        id.toString('ascii').trim(),
        { answer: answerIn(content, transcript.protocol), entity: entityId },
      ]),
    ),
  );
}

/** Unknown entities were made up for the recording. */
function entityAt(transcript: Transcript, block: number, index: number): Buffer {
  return unpackTransmissions(transcript.requests[block]!, transcript.session)[index]!.entityId;
}

function encode(transcript: Transcript, said: readonly Said[], first: number): Buffer[] {
  const { session } = transcript;
  const transmissions = said.map(({ command, entity = NOTHING, key }, index) =>
    encodeTransmission(
      {
        correlationId: correlationId(transcript, first + index),
        entityId: entity,
        content: Buffer.isBuffer(command) ? command : encodeCommand(command),
      },
      session,
      key,
    ),
  );
  return packTransmissions(transmissions, session).map(({ content }) => content);
}

test.each(['smp-v4', 'smp-v9', 'ntf-v1', 'ntf-v2'])(
  'N19 %s: the router is the one that its address names, at the end of the same TLS session',
  (name) => {
    const transcript = loadTranscript(name);
    const hello = readHello(transcript.hello);

    expect(transcript.blockBytes).toBe(transcript.facts.blockBytes);
    expect(distrustOf(transcript.chain, transcript.keyHash.toString('base64url'))).toBeUndefined();
    expect(hello.sessionId).toEqual(transcript.finished);
    expect(agreedVersion(hello, transcript.facts, true)).toBe(transcript.version);
    expect(encodeHello(transcript.version, transcript.keyHash)).toEqual(transcript.clientHello);
  },
);

describe.each(['smp-v4', 'smp-v9'])('%s', (name) => {
  const transcript = loadTranscript(name);
  const answers = answersOf(transcript);
  const [recipient, other] = [transcript.rawKey('recipient'), transcript.rawKey('other')];
  const recipientKey = publicKeyOf('ed25519', recipient);
  const recipientDhKey = publicKeyOf('x25519', transcript.rawKey('dh'));
  const entity = (answers.get('1')!.answer as { recipientId: Buffer }).recipientId;
  const nkey = {
    op: 'NKEY',
    notifierKey: publicKeyOf('ed25519', transcript.rawKey('notifier')),
    recipientDhKey,
  } as const;

  test('N19 every request is made again to the byte', () => {
    const create = newCommand(transcript.version, { recipientKey, recipientDhKey });
    const batch: Said[] = [
      { command: nkey, entity, key: recipient },
      { command: nkey, entity, key: recipient },
      { command: nkey, entity, key: other },
      { command: nkey, entity: entityAt(transcript, 1, 3), key: recipient },
      { command: { op: 'NDEL' }, entity, key: recipient },
      { command: { op: 'NDEL' }, entity, key: recipient },
      { command: { op: 'NDEL' }, entity },
      { command: { op: 'PING' } },
      { command: Buffer.from('HELLO') },
    ];
    const remove: Said = { command: Buffer.from('DEL'), entity, key: recipient };

    expect([
      ...encode(transcript, [{ command: create, key: recipient }], 1),
      ...encode(transcript, batch, 2),
      ...encode(transcript, [remove, remove], 11),
    ]).toEqual(transcript.requests);
  });

  test('N19 every answer is read', () => {
    const error = (code: string, detail?: string) => ({
      op: 'ERR',
      error: { source: 'SMP', code, ...(detail === undefined ? {} : { detail }) },
    });
    const said = Array.from({ length: 12 }, (_, index) => answers.get(String(index + 1))!.answer);
    const [first, second] = said.filter((answer) => answer.op === 'NID');

    expect(said.map(({ op }) => op)).toEqual('IDS NID NID ERR ERR OK OK ERR PONG ERR OK ERR'.split(' '));
    expect(said[3]).toEqual(error('AUTH'));
    expect(said[4]).toEqual(error('AUTH'));
    expect(said[7]).toEqual(error('CMD', 'NO_AUTH'));
    expect(said[9]).toEqual(error('CMD', 'UNKNOWN'));
    expect(said[11]).toEqual(error('AUTH'));
    expect(entity).toHaveLength(24);
    expect(first!.notifierId).not.toEqual(second!.notifierId);
    expect(answers.get('2')!.entity).toEqual(entity);
    expect(answers.get('1')!.entity).toEqual(NOTHING);
    const routerKeys = said.flatMap((answer) => ('routerDhKey' in answer ? [answer.routerDhKey] : []));
    const secrets = routerKeys.map((key) => dhSecret(key, transcript.rawKey('dh')).toString('hex'));
    expect(new Set(secrets).size).toBe(3);
  });
});

describe.each(['ntf-v1', 'ntf-v2'])('%s', (name) => {
  const transcript = loadTranscript(name);
  const answers = answersOf(transcript);
  const [recipient, other] = [transcript.rawKey('recipient'), transcript.rawKey('other')];
  const entity = (answers.get('1')!.answer as { tokenId: Buffer }).tokenId;

  test('N19 every request is made again to the byte', () => {
    const content = (block: number) =>
      unpackTransmissions(transcript.requests[block]!, transcript.session)[0]!.content;
    const tnew = {
      ...({ op: 'TNEW', device: { provider: 'AT', token: 'ABCD1234' } } as const),
      authKey: publicKeyOf('ed25519', recipient),
      dhKey: publicKeyOf('x25519', transcript.rawKey('dh')),
    };
    // What follows the router in SNEW: a fingerprint, the id of a notifier that does not exist, and its key of 49 bytes.
    const router = new Reader(content(6));
    router.take('SNEW S'.length, 'command');
    router.shortString('token');
    router.take(1, 'hosts');
    const snew = {
      ...({ op: 'SNEW', tokenId: entity } as const),
      hosts: [router.shortString('host').toString()],
      port: Number(router.shortString('port').toString()),
      keyHash: router.shortString('fingerprint'),
      notifierId: router.shortString('notifier'),
      notifierPrivateKey: transcript.rawKey('notifier'),
    };
    const said: Said[] = [
      { command: tnew, key: recipient },
      { command: tnew, key: recipient },
      { command: { op: 'TCHK' }, entity, key: recipient },
      { command: { op: 'TCHK' }, entity, key: other },
      { command: { op: 'TCHK' }, entity: entityAt(transcript, 4, 0), key: recipient },
      { command: { op: 'TVFY', code: content(5).subarray(-32) }, entity, key: recipient },
      { command: snew, key: recipient },
      { command: { op: 'TCRN', minutes: 5 }, entity, key: recipient },
      { command: { op: 'TDEL' }, entity, key: recipient },
      { command: { op: 'TDEL' }, entity, key: recipient },
    ];

    expect(said.flatMap((one, index) => encode(transcript, [one], index + 1))).toEqual(transcript.requests);
  });

  test('N19 every answer is read', () => {
    const said = Array.from({ length: 10 }, (_, index) => answers.get(String(index + 1))!.answer);
    const codeOf = (answer: Answer) => ('error' in answer ? answer.error.code : answer.op);

    expect(said.map(codeOf)).toEqual('IDTKN IDTKN TKN AUTH AUTH AUTH AUTH QUOTA OK AUTH'.split(' '));
    expect(said[1]).toEqual(said[0]);
    expect(said[2]).toEqual({ op: 'TKN', status: 'REGISTERED' });
    expect(entity).toHaveLength(24);
    expect(dhSecret((said[0] as { routerDhKey: Buffer }).routerDhKey, transcript.rawKey('dh'))).toHaveLength(
      32,
    );
  });
});

/** What official routers have answered over TLS, block by block, with the keys of the client. */
import { X509Certificate, createPrivateKey, createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { PROTOCOLS } from '../../../activities/subscription/router/blocks.ts';
import type { SessionBinding } from '../../../activities/subscription/router/blocks.ts';
import { privateKeyDer } from '../../../activities/subscription/router/keys.ts';
import type { RouterProtocol } from '../../../api/subscription/router-address.ts';

type KeyName = 'recipient' | 'notifier' | 'dh' | 'other';

interface TranscriptFile {
  protocol: RouterProtocol;
  alpn: string | false;
  blockSize: number;
  certificateChain: string[];
  keyHash: string;
  clientFinished: string;
  keys: Record<KeyName, string>;
  blocks: { from: 'router' | 'client'; hex: string }[];
}

const RAW_KEY_BYTES = 32;

/** @param name of a file in recordings, without its ending. */
export function loadTranscript(name: string) {
  const file = path.join(import.meta.dirname, 'recordings', `${name}.json`);
  const recorded = JSON.parse(readFileSync(file, 'utf8')) as TranscriptFile;
  const { protocol } = recorded;
  const contents = recorded.blocks.map(({ from, hex }) => ({ from, content: Buffer.from(hex, 'hex') }));
  const of = (from: 'router' | 'client') =>
    contents.filter((block) => block.from === from).map(({ content }) => content);
  const [hello, ...answers] = of('router');
  const [clientHello, ...requests] = of('client');
  const finished = Buffer.from(recorded.clientFinished, 'hex');
  const version = clientHello!.readUInt16BE(0);
  const facts = PROTOCOLS[protocol];
  const rawKey = (key: KeyName): Buffer => Buffer.from(recorded.keys[key], 'hex').subarray(-RAW_KEY_BYTES);
  return {
    protocol,
    facts,
    hasAlpn: recorded.alpn !== false,
    blockBytes: recorded.blockSize,
    keyHash: Buffer.from(recorded.keyHash, 'hex'),
    finished,
    chain: recorded.certificateChain.map((der) => new X509Certificate(Buffer.from(der, 'hex'))),
    hello: hello!,
    clientHello: clientHello!,
    version,
    session: { facts, version, id: finished } satisfies SessionBinding,
    /** Without their length and padding, as all that follow. */
    blocks: contents,
    requests,
    answers,
    rawKey,
  };
}

export type Transcript = ReturnType<typeof loadTranscript>;

/** The public half of a raw private key. */
export function publicKeyOf(curve: 'ed25519' | 'x25519', privateKey: Buffer): Buffer {
  const key = createPrivateKey({ key: privateKeyDer(curve, privateKey), format: 'der', type: 'pkcs8' });
  return createPublicKey(key).export({ type: 'spki', format: 'der' }).subarray(-RAW_KEY_BYTES);
}

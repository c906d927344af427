/** Commands of the binary protocol, read into those that the rules know. Ids and keys (DER) are base64url there. */
import type { DeviceToken, PushProvider } from '../../../../activities/subscription/router/ports.ts';
import type { RouterProtocol } from '../../../../api/subscription/router-address.ts';
import type { NtfCommand } from '../protocol.ts';
import type { MessagingCommand } from '../messaging-rules.ts';
import { Refusal } from '../router-rules.ts';
import { MalformedError, Reader } from './bytes.ts';
import { checkAuthKey, readDhKey } from './keys.ts';

type AnyCommand = MessagingCommand | NtfCommand;
type ReadParameters = (reader: Reader, version: number) => AnyCommand;

const VERSION_WITH_PASSWORD = 5;
const VERSION_WITH_SUBSCRIBE_MODE = 6;
const VERSION_WITH_SENDER_SECURES = 9;
const PROVIDERS: readonly string[] = ['AD', 'AP', 'AT', 'AN'] satisfies PushProvider[];
/** The longest message; before version 8 it may be longer. */
const MAX_BODY_BYTES = 16_064;
const MAX_OLD_BODY_BYTES = 16_088;
const VERSION_WITH_SHORTER_BODIES = 8;

const SMP: Readonly<Record<string, ReadParameters>> = {
  NEW: (reader, version) => {
    space(reader);
    const recipientKey = authKey(reader);
    const recipientDhKey = dhKey(reader);
    const password = version >= VERSION_WITH_PASSWORD ? passwordIn(reader, version) : undefined;
    return {
      op: 'NEW',
      recipientKey,
      recipientDhKey,
      ...(password === undefined ? {} : { password }),
      subscribes: version < VERSION_WITH_SUBSCRIBE_MODE || reader.oneOf('S', 'C') === 'S',
      ...(version >= VERSION_WITH_SENDER_SECURES ? { senderMaySecure: reader.oneOf('T', 'F') === 'T' } : {}),
    };
  },
  KEY: (reader) => ({ op: 'KEY', senderKey: authKey(space(reader)) }),
  SKEY: (reader, version) => {
    if (version < VERSION_WITH_SENDER_SECURES) throw new Refusal('CMD', 'UNKNOWN');
    return { op: 'SKEY', senderKey: authKey(space(reader)) };
  },
  NKEY: (reader) => {
    space(reader);
    return { op: 'NKEY', notifierKey: authKey(reader), recipientDhKey: dhKey(reader) };
  },
  NDEL: () => ({ op: 'NDEL' }),
  DEL: () => ({ op: 'DEL' }),
  SUB: () => ({ op: 'SUB' }),
  GET: () => ({ op: 'GET' }),
  ACK: (reader) => ({ op: 'ACK', messageId: id(space(reader)) }),
  SEND: (reader, version) => {
    space(reader);
    const notify = reader.oneOf('T', 'F') === 'T';
    // Flags to come stand behind the first one.
    while (reader.rest[0] !== 0x20) reader.take(1);
    const body = space(reader).take(reader.rest.length);
    const most = version < VERSION_WITH_SHORTER_BODIES ? MAX_OLD_BODY_BYTES : MAX_BODY_BYTES;
    if (body.length > most) throw new Refusal('LARGE_MSG');
    // Rules keep bodies as text: a character for each byte.
    return { op: 'SEND', notify, body: body.toString('latin1') };
  },
  NSUB: () => ({ op: 'NSUB' }),
  PING: () => ({ op: 'PING' }),
};

const NTF: Readonly<Record<string, ReadParameters>> = {
  TNEW: (reader) => {
    space(reader).oneOf('T');
    return { op: 'TNEW', device: deviceToken(reader), authKey: authKey(reader), dhKey: dhKey(reader) };
  },
  TVFY: (reader) => ({ op: 'TVFY', code: id(space(reader)) }),
  TCHK: () => ({ op: 'TCHK' }),
  TRPL: (reader) => ({ op: 'TRPL', device: deviceToken(space(reader)) }),
  TDEL: () => ({ op: 'TDEL' }),
  TCRN: (reader) => ({ op: 'TCRN', minutes: space(reader).word16() }),
  SNEW: (reader) => {
    space(reader).oneOf('S');
    const tokenId = id(reader);
    // The first host is the one to be tried first, and no stand-in has another.
    const [host] = Array.from({ length: reader.byte() }, () => reader.short().toString('latin1'));
    const port = Number(reader.short().toString('latin1'));
    if (host === undefined || !Number.isInteger(port) || port < 1 || port > 0xffff) {
      throw new MalformedError('no address');
    }
    return {
      op: 'SNEW',
      tokenId,
      router: { host, port, keyHash: id(reader) },
      notifierId: id(reader),
      notifierPrivateKey: checkAuthKey(reader.short(), 'private').toString('base64url'),
    };
  },
  SCHK: () => ({ op: 'SCHK' }),
  SDEL: () => ({ op: 'SDEL' }),
  PING: () => ({ op: 'PING' }),
};

const COMMANDS: Record<RouterProtocol, typeof SMP> = { smp: SMP, ntf: NTF };
/** The longest name that is looked at, and written down. */
const MAX_NAME_BYTES = 16;

/** The first word, whatever follows. */
export function operationOf(content: Buffer): string {
  return content.subarray(0, MAX_NAME_BYTES).toString('latin1').split(' ', 1)[0]!;
}

/** @throws Refusal `CMD` with `UNKNOWN` or `SYNTAX`, or `LARGE_MSG`. */
export function readCommand(protocol: RouterProtocol, version: number, content: Buffer): AnyCommand {
  const operation = operationOf(content);
  const read = Object.hasOwn(COMMANDS[protocol], operation) ? COMMANDS[protocol][operation] : undefined;
  if (!read) throw new Refusal('CMD', 'UNKNOWN');
  try {
    const reader = new Reader(content.subarray(operation.length));
    const command = read(reader, version);
    reader.end();
    return command;
  } catch (error) {
    if (error instanceof MalformedError) throw new Refusal('CMD', 'SYNTAX');
    throw error;
  }
}

/** Before version 9 it stands behind an `A`, or is missing. */
function passwordIn(reader: Reader, version: number): string | undefined {
  if (version >= VERSION_WITH_SENDER_SECURES) {
    return reader.oneOf('0', '1') === '0' ? undefined : reader.short().toString('latin1');
  }
  if (reader.rest[0] !== 'A'.charCodeAt(0)) return undefined;
  reader.take(1);
  return reader.short().toString('latin1');
}

function space(reader: Reader): Reader {
  reader.oneOf(' ');
  return reader;
}

const id = (reader: Reader): string => reader.short().toString('base64url');
const authKey = (reader: Reader): string => checkAuthKey(reader.short(), 'public').toString('base64url');
const dhKey = (reader: Reader): string => readDhKey(reader.short()).toString('base64url');

function deviceToken(reader: Reader): DeviceToken {
  const provider = reader.take(2).toString('latin1');
  if (!PROVIDERS.includes(provider)) throw new MalformedError('no push provider');
  return { provider: provider as PushProvider, token: reader.short().toString('latin1') };
}

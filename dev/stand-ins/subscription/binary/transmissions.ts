/** Blocks of one size and the transmissions in them: a command or an answer, with what authorizes and correlates it. */
import type { RouterProtocol } from '../../../../api/subscription/router-address.ts';
import { BLOCK_BYTES } from '../protocol.ts';
import { MalformedError, Reader, large, pad, short, unpad } from './bytes.ts';
import { isAuthorizationLength } from './keys.ts';

/** What both sides agreed on when the connection began. */
export interface Agreement {
  protocol: RouterProtocol;
  version: number;
  /** The client's Finished message of TLS. */
  sessionId: Buffer;
}

export interface Transmission {
  authorization: Buffer;
  /** Empty for what the router says unasked. */
  correlationId: Buffer;
  entity: Buffer;
  content: Buffer;
}

/** A transmission as it came. */
export interface ReceivedTransmission extends Transmission {
  /** What was authorized. */
  authorized: Buffer;
  /** Whether it names another session. */
  isOfOtherSession: boolean;
}

/** From these on the session is signed but not sent, commands may carry authenticators, and their ids are nonces. */
export const VERSION_WITH_SESSION_KEY: Record<RouterProtocol, number> = { smp: 7, ntf: 2 };
/** From these on a block has several transmissions. */
const VERSION_WITH_BATCHES: Record<RouterProtocol, number> = { smp: 4, ntf: 2 };

/** Of a block; the length and the count are among them, and room for a tag. */
const OVERHEAD_BYTES = 19;
const LENGTH_BYTES = 2;
const MAX_TRANSMISSIONS = 255;
const CORRELATION_BYTES = 24;

export const hasSessionKey = ({ protocol, version }: Pick<Agreement, 'protocol' | 'version'>): boolean =>
  version >= VERSION_WITH_SESSION_KEY[protocol];
const hasBatches = ({ protocol, version }: Agreement): boolean => version >= VERSION_WITH_BATCHES[protocol];

/** What is authorized: the session, then all that follows the authorization. */
export function authorizedPart(
  agreement: Agreement,
  { correlationId, entity, content }: Omit<Transmission, 'authorization'>,
): Buffer {
  return Buffer.concat([short(agreement.sessionId), short(correlationId), short(entity), content]);
}

export function writeTransmission(agreement: Agreement, transmission: Transmission): Buffer {
  const authorized = authorizedPart(agreement, transmission);
  const sent = hasSessionKey(agreement) ? authorized.subarray(1 + agreement.sessionId.length) : authorized;
  return Buffer.concat([short(transmission.authorization), sent]);
}

/** @throws MalformedError for what is no transmission. */
export function readTransmission(agreement: Agreement, bytes: Buffer): ReceivedTransmission {
  const reader = new Reader(bytes);
  const authorization = reader.short();
  const isImplied = hasSessionKey(agreement);
  const sent = reader.rest;
  const session = isImplied ? agreement.sessionId : reader.short();
  const correlationId = reader.short();
  const entity = reader.short();
  if (authorization.length > 0 && !isAuthorizationLength(authorization.length)) {
    throw new MalformedError('no authorization has this length');
  }
  if (isImplied && correlationId.length !== 0 && correlationId.length !== CORRELATION_BYTES) {
    throw new MalformedError('a correlation id has 24 bytes');
  }
  return {
    authorization,
    correlationId,
    entity,
    content: reader.rest,
    authorized: isImplied ? Buffer.concat([short(agreement.sessionId), sent]) : sent,
    isOfOtherSession: !session.equals(agreement.sessionId),
  };
}

/** @throws MalformedError for what is no block of transmissions. */
export function readBlock(agreement: Agreement, block: Buffer): Buffer[] {
  const content = unpad(block);
  if (!hasBatches(agreement)) return [content];
  const reader = new Reader(content);
  const count = reader.byte();
  if (count === 0) throw new MalformedError('an empty block');
  const transmissions = Array.from({ length: count }, () => reader.large());
  reader.end();
  return transmissions;
}

/** Packs transmissions into blocks in their order, as many into each as fit. */
export function writeBlocks(agreement: Agreement, transmissions: readonly Buffer[]): Buffer[] {
  const blockBytes = BLOCK_BYTES[agreement.protocol];
  if (!hasBatches(agreement)) return transmissions.map((transmission) => pad(transmission, blockBytes));
  const blocks: Buffer[][] = [];
  let used = 0;
  for (const transmission of transmissions) {
    const size = LENGTH_BYTES + transmission.length;
    const block = blocks.at(-1);
    if (block && block.length < MAX_TRANSMISSIONS && used + size <= blockBytes - OVERHEAD_BYTES) {
      block.push(transmission);
      used += size;
    } else {
      blocks.push([transmission]);
      used = size;
    }
  }
  return blocks.map((block) =>
    pad(Buffer.concat([Buffer.from([block.length]), ...block.map(large)]), blockBytes),
  );
}

/**
 * The protocols of messaging (SMP) and notification (NTF) routers as JSON over HTTPS (messaging-router-openapi.yaml,
 * notification-router-openapi.yaml): commands, answers, and how commands are packed.
 *
 * One request is one batch: commands in blocks of bounded size. The answer is a stream of lines, one for each command,
 * in any order: an answer that is late holds up no other.
 */
import { z } from 'zod';

export type RouterProtocol = 'smp' | 'ntf';

export const handshakePath = (protocol: RouterProtocol): string => `/${protocol}/handshake`;
export const commandsPath = (protocol: RouterProtocol): string => `/${protocol}/commands`;
/** Where a messaging router streams what happens to queues that were subscribed to in this session. */
export const SESSION_PATH = '/smp/session';

/** The newest versions spoken here, and the oldest that anybody is asked to speak. */
export const NEWEST_VERSION: Record<RouterProtocol, number> = { smp: 17, ntf: 3 };
export const OLDEST_VERSION: Record<RouterProtocol, number> = { smp: 6, ntf: 1 };
/** From this one on, a queue is made together with its notifier credentials. */
export const SMP_VERSION_WITH_NOTIFIER = 17;
/** From this one on, a block holds more than one command. */
export const NTF_VERSION_WITH_BATCHES = 2;
/** From this one on, a router says why a token is invalid. */
export const NTF_VERSION_WITH_REASONS = 3;

/** A block, bytes, of which some are for what surrounds the commands. */
export const BLOCK_BYTES: Record<RouterProtocol, number> = { smp: 16_384, ntf: 512 };
const BLOCK_OVERHEAD_BYTES = 19;
const MAX_COMMANDS_PER_BLOCK = 255;

/** Bytes in base64url without padding, and nothing that decodes to the same bytes in another spelling. */
function bytes(min: number, max = min) {
  return z
    .string()
    .max(Math.ceil((max * 4) / 3))
    .refine(
      (text) => {
        const decoded = Buffer.from(text, 'base64url');
        return decoded.toString('base64url') === text && decoded.length >= min && decoded.length <= max;
      },
      `must be ${min === max ? min : `${min} to ${max}`} bytes in base64url`,
    );
}

export const rawKey = bytes(32);
export const entityId = bytes(16, 24);
const tokenId = bytes(24);

export const routerAddressSchema = z.strictObject({
  host: z.string().regex(/^[A-Za-z0-9._:-]{1,253}$/),
  port: z.int().min(1).max(65_535),
  keyHash: rawKey,
});

export const deviceTokenSchema = z.strictObject({
  provider: z.enum(['AD', 'AP', 'AT', 'AN']),
  // APNs: at most 100 bytes.
  token: z.string().regex(/^(?:[0-9a-f]{2}){1,100}$/, 'must be 1 to 100 bytes in lower-case hex'),
});

const notifierKeys = { notifierKey: rawKey, recipientDhKey: rawKey };

/** Parameters of a messaging router's commands. Nothing beside them is accepted. */
export const SMP_COMMANDS = {
  NEW: z.strictObject({
    op: z.literal('NEW'),
    recipientKey: rawKey,
    notifier: z.strictObject(notifierKeys).optional(),
  }),
  NKEY: z.strictObject({ op: z.literal('NKEY'), ...notifierKeys }),
  NDEL: z.strictObject({ op: z.literal('NDEL') }),
  DEL: z.strictObject({ op: z.literal('DEL') }),
  SUB: z.strictObject({ op: z.literal('SUB') }),
  GET: z.strictObject({ op: z.literal('GET') }),
  ACK: z.strictObject({ op: z.literal('ACK'), messageId: entityId }),
  SEND: z.strictObject({ op: z.literal('SEND'), notify: z.boolean(), body: z.string().max(16_000) }),
  NSUB: z.strictObject({ op: z.literal('NSUB') }),
  PING: z.strictObject({ op: z.literal('PING') }),
} as const;

/** Parameters of a notification router's commands. */
export const NTF_COMMANDS = {
  TNEW: z.strictObject({ op: z.literal('TNEW'), device: deviceTokenSchema, authKey: rawKey, dhKey: rawKey }),
  TVFY: z.strictObject({ op: z.literal('TVFY'), code: bytes(32) }),
  TCHK: z.strictObject({ op: z.literal('TCHK') }),
  TRPL: z.strictObject({ op: z.literal('TRPL'), device: deviceTokenSchema }),
  TDEL: z.strictObject({ op: z.literal('TDEL') }),
  TCRN: z.strictObject({ op: z.literal('TCRN'), minutes: z.int().min(0).max(65_535) }),
  SNEW: z.strictObject({
    op: z.literal('SNEW'),
    tokenId,
    router: routerAddressSchema,
    notifierId: entityId,
    notifierPrivateKey: rawKey,
  }),
  SCHK: z.strictObject({ op: z.literal('SCHK') }),
  SDEL: z.strictObject({ op: z.literal('SDEL') }),
  PING: z.strictObject({ op: z.literal('PING') }),
} as const;

type CommandsOf<Schemas extends Record<string, z.ZodType>> = z.output<Schemas[keyof Schemas]>;
export type SmpCommand = CommandsOf<typeof SMP_COMMANDS>;
export type NtfCommand = CommandsOf<typeof NTF_COMMANDS>;
export type RouterCommand = SmpCommand | NtfCommand;

/** A command on its way. */
export interface SentCommand {
  /** Of this command in its request; its answer has the same. */
  id: string;
  /** The queue, token or subscription that it is about. */
  entity?: string;
  command: RouterCommand;
  /** base64url; see `signCommand`. */
  signature?: string;
}

/** What a router accepts at all. Whether a command is right is told for each of them by itself. */
export const requestSchema = z.object({
  version: z.int(),
  /** Subscriptions of this request belong to this open session. */
  session: z.string().max(100).optional(),
  blocks: z
    .array(
      z.array(
        z.object({
          id: z.string().min(1).max(64),
          entity: z.string().max(100).optional(),
          command: z.looseObject({ op: z.string().max(16) }),
          signature: z.string().max(200).optional(),
        }),
      ),
    )
    .max(10_000),
});

export const handshakeSchema = z.object({
  protocol: z.enum(['smp', 'ntf']),
  min: z.int().min(1),
  max: z.int().min(1),
});

/** The error of a command: `AUTH`, `QUOTA`, `CMD` with what is wrong with it as detail … */
export const commandErrorSchema = z.object({
  code: z.string().regex(/^[A-Z][A-Z_]{0,31}$/),
  detail: z.string().max(200).optional(),
});
export type CommandError = z.output<typeof commandErrorSchema>;

const errorAnswer = z.object({ op: z.literal('ERR'), error: commandErrorSchema });
const okAnswer = z.object({ op: z.literal('OK') });
const pongAnswer = z.object({ op: z.literal('PONG') });
const notifierAnswer = { notifierId: entityId, routerDhKey: rawKey };

export const smpAnswerSchema = z.discriminatedUnion('op', [
  z.object({
    op: z.literal('IDS'),
    recipientId: entityId,
    senderId: entityId,
    notifier: z.object(notifierAnswer).optional(),
  }),
  z.object({ op: z.literal('NID'), ...notifierAnswer }),
  z.object({ op: z.literal('MSG'), messageId: entityId, body: z.string(), at: z.int() }),
  okAnswer,
  pongAnswer,
  errorAnswer,
]);
export type SmpAnswer = z.output<typeof smpAnswerSchema>;

export const TOKEN_STATUSES = [
  'NEW',
  'REGISTERED',
  'INVALID',
  'INVALID,BAD',
  'INVALID,TOPIC',
  'INVALID,EXPIRED',
  'INVALID,UNREGISTERED',
  'CONFIRMED',
  'ACTIVE',
  'EXPIRED',
] as const;

export const ntfAnswerSchema = z.discriminatedUnion('op', [
  z.object({ op: z.literal('IDTKN'), tokenId, routerDhKey: rawKey }),
  z.object({ op: z.literal('TKN'), status: z.enum(TOKEN_STATUSES) }),
  z.object({ op: z.literal('IDSUB'), subscriptionId: tokenId }),
  // `ERR` is followed by what the messaging router said.
  z.object({
    op: z.literal('SUB'),
    status: z
      .string()
      .regex(/^(NEW|PENDING|ACTIVE|INACTIVE|SERVICE|END|DELETED|AUTH|ERR [\x20-\x7e]{0,200})$/),
  }),
  okAnswer,
  pongAnswer,
  errorAnswer,
]);
export type NtfAnswer = z.output<typeof ntfAnswerSchema>;

/** One line of an answer. */
export interface AnswerLine {
  id: string;
  entity?: string;
  answer: SmpAnswer | NtfAnswer;
}
export const answerLineSchema = z.object({
  id: z.string(),
  entity: z.string().optional(),
  answer: z.looseObject({ op: z.string() }),
});

/** What a messaging router says in a session, one line each. */
export const sessionEventSchema = z.discriminatedUnion('event', [
  /** The first line. */
  z.object({ event: z.literal('SESSION'), session: z.string().min(1).max(100) }),
  /** A message arrived; `meta` is encrypted for the recipient. */
  z.object({
    event: z.literal('NMSG'),
    notifierId: entityId,
    at: z.int(),
    meta: z.object({ nonce: z.string(), content: z.string() }),
  }),
  /** Another session has subscribed. */
  z.object({ event: z.literal('END'), entity: entityId }),
  /** The notifier, or its queue, has been deleted. */
  z.object({ event: z.literal('DELD'), entity: entityId }),
  z.object({
    event: z.literal('MSG'),
    recipientId: entityId,
    messageId: entityId,
    body: z.string(),
    at: z.int(),
  }),
]);
export type SessionEvent = z.output<typeof sessionEventSchema>;

/** What an encrypted notification says about its message. */
export const messageMetaSchema = z.object({ messageId: entityId, at: z.int() });
export type MessageMeta = z.output<typeof messageMetaSchema>;

/** One of the messages that a push is about, encrypted for the token's owner together with the others. */
export const pushedMessageSchema = z.object({
  host: z.string(),
  port: z.int(),
  notifierId: entityId,
  at: z.int(),
  meta: z.object({ nonce: z.string(), content: z.string() }),
});
export type PushedMessage = z.output<typeof pushedMessageSchema>;

/** Bytes of a command in a block. */
export function bytesOf(command: SentCommand): number {
  return Buffer.byteLength(JSON.stringify(command), 'utf8');
}

export interface BlockLimits {
  blockBytes: number;
  /** One at a time, as a router wants it that knows no batches. */
  isSingle?: boolean;
}

/**
 * Packs commands into blocks in their order, as many into each as fit.
 *
 * @returns the blocks, and the commands that are too large for any.
 */
export function packBlocks(
  commands: readonly SentCommand[],
  { blockBytes, isSingle = false }: BlockLimits,
): { blocks: SentCommand[][]; tooLarge: SentCommand[] } {
  const room = blockBytes - BLOCK_OVERHEAD_BYTES;
  const most = isSingle ? 1 : MAX_COMMANDS_PER_BLOCK;
  const blocks: SentCommand[][] = [];
  const tooLarge: SentCommand[] = [];
  let block: SentCommand[] | undefined;
  let used = 0;
  for (const command of commands) {
    const size = bytesOf(command);
    if (size > room) {
      tooLarge.push(command);
      continue;
    }
    if (!block || block.length === most || used + size > room) {
      block = [];
      blocks.push(block);
      used = 0;
    }
    block.push(command);
    used += size;
  }
  return { blocks, tooLarge };
}

/** Whether a router can take a block. */
export function fitsBlock(
  block: readonly SentCommand[],
  { blockBytes, isSingle = false }: BlockLimits,
): boolean {
  const used = block.reduce((sum, command) => sum + bytesOf(command), 0);
  return used <= blockBytes - BLOCK_OVERHEAD_BYTES && block.length <= (isSingle ? 1 : MAX_COMMANDS_PER_BLOCK);
}

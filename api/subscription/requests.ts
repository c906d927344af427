/**
 * What clients hand over to the service with secrets in it: sealed in `subscriptions.requests`, and not in a workflow.
 */
import { z } from 'zod';
import type { KeyBox } from '../key-box.ts';
import { AddressError, MOST_HOST_CHARACTERS, parseRouterAddress } from './router-address.ts';
import { entityId, rawKey, deviceTokenSchema } from './router-address.ts';

const HOST = new RegExp(`^[A-Za-z0-9_.:,[\\]-]{1,${MOST_HOST_CHARACTERS}}$`);

/** Most queues of one request. */
export const MAX_IMPORTED_QUEUES = 100;

/** The parts of an address, or an address as people have it. */
const importedServerSchema = z.preprocess(
  (server, context) => {
    if (typeof server !== 'string') return server;
    try {
      return parseRouterAddress(server, 'smp');
    } catch (error) {
      if (!(error instanceof AddressError)) throw error;
      context.addIssue(error.message);
      return z.NEVER;
    }
  },
  z.strictObject({
    host: z.string().regex(HOST, { error: 'must be a host name or address' }),
    port: z.int().min(1).max(65_535),
    /** SHA-256 of the certificate at the end of its chain. */
    keyHash: rawKey,
  }),
);

export const importedQueueSchema = z.strictObject({
  /** Default: a new one. */
  connId: z
    .string()
    .regex(/^[A-Za-z0-9_.:=-]{1,64}$/, { error: 'must be 1 to 64 of A-Z a-z 0-9 _ . : = -' })
    .optional(),
  userId: z.int().min(0).max(2_147_483_647),
  /** Its messaging router. */
  server: importedServerSchema,
  /** Default true. */
  enableNotifications: z.boolean().optional(),
  recipientId: entityId,
  /** Raw Ed25519. */
  recipientPrivateKey: rawKey,
  /** Notifier credentials, if it has any; the next subscription makes new ones. */
  notifier: z
    .strictObject({
      notifierId: entityId,
      /** Raw Ed25519. */
      publicKey: rawKey,
      privateKey: rawKey,
      /** Agreed with the router by X25519. */
      dhSecret: rawKey,
    })
    .optional(),
});
export type ImportedQueue = z.output<typeof importedQueueSchema>;
/** As it is sealed: every connection has its id. */
export type QueueToImport = ImportedQueue & { connId: string };

const contentSchema = z.array(importedQueueSchema.required({ connId: true })).max(MAX_IMPORTED_QUEUES);
export const queueImports = sealedAs(contentSchema);

const MOST_CODE_CHARACTERS = 8_192;

export const tokenRequestSchema = z.object({
  /** Absent: whichever device the saved token has. */
  device: deviceTokenSchema.optional(),
  /** Of a registration. */
  mode: z.enum(['PERIODIC', 'INSTANT']).optional(),
  /** From the push to the device, base64 or base64url each; routers with their own protocol pad codes to kilobytes. */
  verification: z
    .object({ nonce: z.string().min(1).max(64), code: z.string().min(1).max(MOST_CODE_CHARACTERS) })
    .optional(),
});
export type TokenRequestContent = z.output<typeof tokenRequestSchema>;

export const tokenRequests = sealedAs(tokenRequestSchema);

export type Sealing<Content> = ReturnType<typeof sealedAs<Content>>;

/** How the content of a row is sealed: for this row alone. */
function sealedAs<Content>(schema: z.ZodType<Content>) {
  const contextOf = (requestId: string): string => `requests.sealed:${requestId}`;
  return {
    seal: (keyBox: KeyBox, requestId: string, content: Content): Buffer =>
      keyBox.seal(Buffer.from(JSON.stringify(content), 'utf8'), contextOf(requestId)),
    /** @throws KeyBoxError, and ZodError for a request of another release. */
    open: (keyBox: KeyBox, requestId: string, sealed: Buffer): Content =>
      schema.parse(JSON.parse(keyBox.open(sealed, contextOf(requestId)).toString('utf8'))),
  };
}

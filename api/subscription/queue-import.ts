/**
 * Queues that an application has already, as a client hands them over: sealed in `subscriptions.queue_imports`, because
 * they come with their private keys.
 */
import { z } from 'zod';
import type { KeyBox } from '../key-box.ts';
import { AddressError, MOST_HOST_CHARACTERS, parseRouterAddress } from './router-address.ts';
import { entityId, rawKey } from './router-wire.ts';

const HOST = new RegExp(`^[A-Za-z0-9_.:,[\\]-]{1,${MOST_HOST_CHARACTERS}}$`);

/** Most queues of one request. */
export const MAX_IMPORTED_QUEUES = 100;

/** The parts of an address, or an address as people have it, with the password if it has one. */
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
    /** For those who make queues: an import needs none. */
    basicAuth: z.string().min(1).max(255).optional(),
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
  senderId: entityId.optional(),
  /** Raw Ed25519. */
  recipientPrivateKey: rawKey,
  /** By which its messages are read, agreed with the router by X25519. */
  dhSecret: rawKey.optional(),
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
const contextOf = (requestId: string): string => `queue_imports.sealed:${requestId}`;

export function sealImport(keyBox: KeyBox, requestId: string, queues: readonly QueueToImport[]): Buffer {
  return keyBox.seal(Buffer.from(JSON.stringify(queues), 'utf8'), contextOf(requestId));
}

/** @throws KeyBoxError, and ZodError for a request of another release. */
export function openImport(keyBox: KeyBox, requestId: string, sealed: Buffer): QueueToImport[] {
  return contentSchema.parse(JSON.parse(keyBox.open(sealed, contextOf(requestId)).toString('utf8')));
}

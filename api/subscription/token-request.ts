/**
 * What a client asks of an agent's token, as it stands in `subscriptions.token_requests`: sealed, because it names a
 * device and may hold the code that verifies it.
 */
import { z } from 'zod';
import type { KeyBox } from '../key-box.ts';
import { deviceTokenSchema } from './router-wire.ts';

const MOST_CODE_CHARACTERS = 8_192;

export const tokenRequestSchema = z.object({
  /** Absent: whichever device the saved token has. */
  device: deviceTokenSchema.optional(),
  /** From the push to the device, base64 or base64url each; routers with their own protocol pad codes to kilobytes. */
  verification: z
    .object({ nonce: z.string().min(1).max(64), code: z.string().min(1).max(MOST_CODE_CHARACTERS) })
    .optional(),
});
export type TokenRequestContent = z.output<typeof tokenRequestSchema>;

const contextOf = (requestId: string): string => `token_requests.sealed:${requestId}`;

export function sealTokenRequest(keyBox: KeyBox, requestId: string, content: TokenRequestContent): Buffer {
  return keyBox.seal(Buffer.from(JSON.stringify(content), 'utf8'), contextOf(requestId));
}

/** @throws KeyBoxError, and ZodError for a request of another release. */
export function openTokenRequest(keyBox: KeyBox, requestId: string, sealed: Buffer): TokenRequestContent {
  return tokenRequestSchema.parse(JSON.parse(keyBox.open(sealed, contextOf(requestId)).toString('utf8')));
}

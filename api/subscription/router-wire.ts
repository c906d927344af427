/** The words that the protocols of messaging (SMP) and notification (NTF) routers share with inputs of this service. */
import { z } from 'zod';

export type RouterProtocol = 'smp' | 'ntf';

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

export const deviceTokenSchema = z.strictObject({
  provider: z.enum(['AD', 'AP', 'AT', 'AN']),
  // APNs: at most 100 bytes.
  token: z.string().regex(/^(?:[0-9a-f]{2}){1,100}$/, 'must be 1 to 100 bytes in lower-case hex'),
});

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

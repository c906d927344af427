/** Whether a notification router does what it is there for, tried with a token behind which there is no device. */
import type { NotificationRouter, RouterAddress, RouterError, RouterResult } from './ports.ts';
import { generateAuthKeys, generateDhKeys } from './signing.ts';

export interface SelfTestFailure {
  step: 'connect' | 'create' | 'delete';
  error: RouterError;
}

/** A provider that never pushes, and any device. */
const NO_DEVICE = { provider: 'AN', token: '00'.repeat(32) } as const;

/** @returns where it came to a halt; nothing when all went well. Leaves nothing behind on the router. */
export async function selfTest(
  router: NotificationRouter,
  address: RouterAddress,
): Promise<SelfTestFailure | undefined> {
  const connected = await router.ping(address);
  if (!connected.ok) return failureOf('connect', connected);
  const auth = generateAuthKeys();
  const { publicKey: dhPublicKey } = generateDhKeys();
  const created = await router.registerToken({ address, device: NO_DEVICE, auth, dhPublicKey });
  if (!created.ok) return failureOf('create', created);
  const { tokenId } = created.value;
  const deleted = await router.deleteToken({ address, tokenId, privateKey: auth.privateKey });
  return deleted.ok ? undefined : failureOf('delete', deleted);
}

function failureOf(
  step: SelfTestFailure['step'],
  { error }: Extract<RouterResult<unknown>, { ok: false }>,
): SelfTestFailure {
  return { step, error };
}

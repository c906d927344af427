/** What can be wrong with routers. A notification router is tried with a token behind which there is no device. */
import {
  createNotificationRouters,
  createMessagingRouters,
} from '../../activities/subscription/router/routers.ts';
import type { RouterAddress, RouterResult } from '../../activities/subscription/router/ports.ts';
import type { NotificationRouter } from '../../activities/subscription/router/routers.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import { causeOf } from '../../client/errors.ts';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { error, ok, tryAll } from '../checks.ts';
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { UsageError, readSecret } from '../command.ts';

/** For a connection and for each command, ms: all steps together fit into the time of a check. */
const STEP_LIMIT_MS = 1_000;
const MEANWHILE = 'their work is tried again until they do; see subscriptions status';
/** A provider that never pushes, and any device. */
const NO_DEVICE = { provider: 'AN', token: '00'.repeat(32) } as const;

export const routerChecks = (addresses: readonly RouterAddress[]): CheckGroup => [
  ['notification routers', () => tryRouters(addresses)],
];

async function tryRouters(addresses: readonly RouterAddress[]): Promise<Diagnosis> {
  const router = createNotificationRouters({ commandTimeoutMs: STEP_LIMIT_MS, timeoutMs: STEP_LIMIT_MS });
  const named = addresses.map((address) => ({ ...address, name: `${address.host}:${address.port}` }));
  const test = (address: RouterAddress) => selfTest(router, address);
  return tryAll(named, test, 'can make a token and delete it', MEANWHILE).finally(() => router.close());
}

/** Leaves nothing behind on the router. @throws the step that failed, and why. */
async function selfTest(router: NotificationRouter, address: RouterAddress): Promise<void> {
  valueOf('connect', await router.ping(address));
  const auth = generateAuthKeys();
  const { publicKey: dhPublicKey } = generateDhKeys();
  const registration = { address, device: NO_DEVICE, auth, dhPublicKey };
  const { tokenId } = valueOf('create', await router.registerToken(registration));
  valueOf('delete', await router.deleteToken({ address, tokenId, privateKey: auth.privateKey }));
}

function valueOf<T>(step: 'connect' | 'create' | 'delete', result: RouterResult<T>): T {
  if (result.ok) return result.value;
  const { source, code, detail } = result.error;
  throw new Error(`${step}, ${source} ${code}${detail === undefined ? '' : `, ${detail}`}`);
}

// --- One router: doctor --router -------------------------------------------------------------------------------------

/** For a connection and for each command, ms: the router may be far away. */
const TRIAL_STEP_LIMIT_MS = 5_000;
/** A connection, and at most three commands. */
export const TRIAL_LIMIT_MS = 4 * TRIAL_STEP_LIMIT_MS;

/**
 * Whether a router is reached, is the one that its address names, speaks a version that is spoken here, and answers. A
 * notification router also makes a token and deletes it; on a messaging router nothing is made: queues belong to applications.
 */
export function routerTrial(address: BinaryAddress): CheckGroup {
  const name = address.protocol === 'smp' ? 'messaging router' : 'notification router';
  return [[name, () => tryRouter(address)]];
}

async function tryRouter(address: BinaryAddress): Promise<Diagnosis> {
  const limits = { timeoutMs: TRIAL_STEP_LIMIT_MS, commandTimeoutMs: TRIAL_STEP_LIMIT_MS };
  const router =
    address.protocol === 'smp' ? createMessagingRouters(limits) : createNotificationRouters(limits);
  const { host, port, keyHash } = address;
  try {
    if ('registerToken' in router) await selfTest(router, address);
    else valueOf('connect', await router.ping(address));
    return ok(`${host}:${port} answers under the fingerprint ${keyHash}`);
  } catch (failure) {
    return error(`${host}:${port}: ${causeOf(failure)}`, 'see the log of the router, and its address');
  } finally {
    await router.close();
  }
}

/**
 * The router that an argument names, or standard input for `-`.
 *
 * @throws UsageError for an invalid address, or an argument with a password.
 */
export async function readRouter(argument: string): Promise<BinaryAddress> {
  const hasPassword = /^\w+:\/\/[^@]*:.*@/s.test(argument);
  const text =
    argument === '-' || hasPassword ? await readSecret(argument, 'an address with a password') : argument;
  try {
    return parseBinaryAddress(text);
  } catch (failure) {
    if (failure instanceof AddressError) throw new UsageError(failure.message);
    throw failure;
  }
}

/** What can be wrong with routers. A notification router is tried with a token behind which there is no device. */
import {
  createNotificationRouters,
  createMessagingRouters,
} from '../../activities/subscription/router/routers.ts';
import type { RouterAddress, RouterResult } from '../../activities/subscription/router/ports.ts';
import type { NotificationRouter } from '../../activities/subscription/router/routers.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { tryAll } from '../checks.ts';
import type { BinaryAddress, RouterProtocol } from '../../api/subscription/router-address.ts';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { UsageError, readSecret } from '../command.ts';

/** For a connection and for each command, ms: a router may be far away. */
const STEP_LIMIT_MS = 5_000;
/** A connection, and at most three commands. */
const LIMIT_MS = 4 * STEP_LIMIT_MS;
const MEANWHILE = 'their work is tried again until they do; see subscriptions status';
const LOOK_THERE = 'see the log of the router, and its address';
/** A provider that never pushes, and any device. */
const NO_DEVICE = { provider: 'AN', token: '00'.repeat(32) } as const;

/** Whether all configured notification routers can be used. */
export const routerChecks = (addresses: readonly RouterAddress[]): CheckGroup => [
  [
    'notification routers',
    () => tryRouters(addresses, 'ntf', 'can make a token and delete it', MEANWHILE),
    LIMIT_MS,
  ],
];

/**
 * Whether a router is reached, is the one that its address names, speaks a version that is spoken here, and answers. A
 * notification router also makes a token and deletes it; on a messaging router nothing is made: queues belong to applications.
 */
export const routerTrial = ({ protocol, ...address }: BinaryAddress): CheckGroup => [
  [
    protocol === 'smp' ? 'messaging router' : 'notification router',
    () => tryRouters([address], protocol, `answers under the fingerprint ${address.keyHash}`, LOOK_THERE),
    LIMIT_MS,
  ],
];

async function tryRouters(
  addresses: readonly RouterAddress[],
  protocol: RouterProtocol,
  success: string,
  hint: string,
): Promise<Diagnosis> {
  const limits = { timeoutMs: STEP_LIMIT_MS, commandTimeoutMs: STEP_LIMIT_MS };
  const router = protocol === 'smp' ? createMessagingRouters(limits) : createNotificationRouters(limits);
  const named = addresses.map((address) => ({ ...address, name: `${address.host}:${address.port}` }));
  const attempt = async (address: RouterAddress) => {
    valueOf('connect', await router.ping(address));
    if ('registerToken' in router) await makeToken(router, address);
  };
  return tryAll(named, attempt, success, hint).finally(() => router.close());
}

/** Makes a token and deletes it. @throws the step that failed, and why. */
async function makeToken(router: NotificationRouter, address: RouterAddress): Promise<void> {
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

/** `doctor --router`: one router, tried with what is removed again. */
import type { RouterWatch } from '../../activities/subscription/router/binary/routers.ts';
import type { RouterSessionsOptions } from '../../activities/subscription/router/binary/sessions.ts';
import {
  createMessagingRouters,
  createNotificationRouters,
} from '../../activities/subscription/router/binary/routers.ts';
import type { BinaryAddress } from '../../api/subscription/router-address.ts';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import type { MessagingRouter } from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { error, ok } from '../checks.ts';
import { UsageError } from '../command.ts';
import type { SelfTestFailure } from './check.ts';
import { failureOf, selfTest, textOf } from './check.ts';

/** For a connection and for each command, ms: the router may be far away. */
const STEP_LIMIT_MS = 5_000;
/** A connection, and at most five commands. */
export const TRIAL_LIMIT_MS = 6 * STEP_LIMIT_MS;

type Trial<Router> = (router: Router, address: BinaryAddress) => Promise<SelfTestFailure | undefined>;

/** @throws UsageError when the text is no address of a router. */
export function routerTrial(text: string, socksProxy?: RouterSessionsOptions['socksProxy']): CheckGroup {
  let address: BinaryAddress;
  try {
    address = parseBinaryAddress(text);
  } catch (failure) {
    if (failure instanceof AddressError) throw new UsageError(failure.message);
    throw failure;
  }
  const limits = { timeoutMs: STEP_LIMIT_MS, commandTimeoutMs: STEP_LIMIT_MS, socksProxy };
  return address.protocol === 'smp'
    ? [['messaging router', () => tryRouter(createMessagingRouters(limits), address, selfTestMessaging)]]
    : [['notification router', () => tryRouter(createNotificationRouters(limits), address, selfTest)]];
}

async function tryRouter<Router extends RouterWatch & Pick<MessagingRouter, 'close' | 'ping'>>(
  router: Router,
  address: BinaryAddress,
  trial: Trial<Router>,
): Promise<Diagnosis> {
  try {
    const failure = await trial(router, address);
    if (failure) return error(textOf(address, failure), 'see the log of the router, and its address');
    const held = await router.factsOf(address);
    if (!held.ok) return error(textOf(address, failureOf('connect', held)), 'the router closes sessions');
    const beforeMs = performance.now();
    await router.ping(address);
    const roundTripMs = Math.ceil(performance.now() - beforeMs);
    const { host, version, routerVersions } = held.value;
    return ok(
      [
        `${host}:${address.port} with the fingerprint ${address.keyHash}`,
        `version ${version} of ${routerVersions.join(' to ')}`,
        `round trip ${roundTripMs} ms`,
        'what was made on it has been deleted',
      ].join(', '),
    );
  } finally {
    await router.close();
  }
}

/** @returns the step that failed, undefined when all went well. Leaves nothing behind on the router. */
export async function selfTestMessaging(
  router: MessagingRouter,
  address: BinaryAddress,
): Promise<SelfTestFailure | undefined> {
  const connected = await router.ping(address);
  if (!connected.ok) return failureOf('connect', connected);
  const { publicKey: recipientPublicKey, privateKey: recipientPrivateKey } = generateAuthKeys();
  const { publicKey: recipientDhPublicKey } = generateDhKeys();
  const created = await router.createQueue({
    ...{ address, recipientPublicKey, recipientPrivateKey, recipientDhPublicKey },
  });
  if (!created.ok) return failureOf('create', created);
  const queue = {
    ...{ address, userId: 0, connId: '', recipientId: created.value.recipientId, recipientPrivateKey },
  };
  const failure = await tryNotifier(router, queue);
  const [deleted] = await router.deleteQueues([queue]);
  return failure ?? (deleted!.result.ok ? undefined : failureOf('delete', deleted!.result));
}

async function tryNotifier(
  router: MessagingRouter,
  queue: Parameters<MessagingRouter['deleteNotifierKeys']>[0][number],
): Promise<SelfTestFailure | undefined> {
  const notifierPublicKey = generateAuthKeys().publicKey;
  const recipientDhPublicKey = generateDhKeys().publicKey;
  const [enabled] = await router.createNotifierKeys([{ queue, notifierPublicKey, recipientDhPublicKey }]);
  if (!enabled!.result.ok) return failureOf('enable notifications', enabled!.result);
  const [disabled] = await router.deleteNotifierKeys([queue]);
  return disabled!.result.ok ? undefined : failureOf('disable notifications', disabled!.result);
}

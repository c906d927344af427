/** What can be wrong with notification routers: each is tried with a token behind which there is no device. */
import type { Pool } from 'pg';
import { createNotificationRouters } from '../../activities/subscription/router/binary/routers.ts';
import type { RouterSessionsOptions } from '../../activities/subscription/router/binary/sessions.ts';
import type {
  NotificationRouter,
  RouterAddress,
  RouterError,
  RouterResult,
} from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/signing.ts';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { error, ok, warn } from '../checks.ts';
import { countOf } from '../output.ts';

/** For a connection and for each command, ms: all steps together fit into the time of a check. */
const STEP_LIMIT_MS = 1_000;
const MEANWHILE = 'their work is tried again until they do; see subscriptions status';
/** A provider that never pushes, and any device. */
const NO_DEVICE = { provider: 'AN', token: '00'.repeat(32) } as const;

export interface SelfTestFailure {
  step: 'connect' | 'create' | 'enable notifications' | 'disable notifications' | 'delete';
  error: RouterError;
}

export const subscriptionChecks = (db: Pool): CheckGroup => [['subscriptions: given up', () => givenUp(db)]];

async function givenUp(db: Pool): Promise<Diagnosis> {
  const { rows } = await db.query<{ given_up: number; deletions: number; oldest: Date | null }>(
    COUNT_GIVEN_UP,
  );
  const { given_up: count, oldest } = rows[0]!;
  if (count === 0) return ok('none');
  return warn(
    `${countOf(count, 'subscription')}, the oldest since ${oldest?.toISOString() ?? 'an unknown time'}`,
    'see subscriptions list --given-up; subscriptions retry starts them over',
  );
}

const COUNT_GIVEN_UP = `
  SELECT count(*)::int AS given_up, min(updated_at) AS oldest
    FROM subscriptions.ntf_subscriptions
   WHERE smp_action IS NULL AND ntf_action IS NULL`;

export const routerChecks = (
  addresses: readonly RouterAddress[],
  socksProxy?: RouterSessionsOptions['socksProxy'],
): CheckGroup => [['notification routers', () => tryRouters(addresses, socksProxy)]];

async function tryRouters(
  addresses: readonly RouterAddress[],
  socksProxy: RouterSessionsOptions['socksProxy'],
): Promise<Diagnosis> {
  const router = createNotificationRouters({
    ...{ commandTimeoutMs: STEP_LIMIT_MS, timeoutMs: STEP_LIMIT_MS, socksProxy },
  });
  try {
    const failures = await Promise.all(
      addresses.map(async (address) => {
        const failure = await selfTest(router, address);
        return failure ? [textOf(address, failure)] : [];
      }),
    );
    const texts = failures.flat();
    const routers = countOf(addresses.length, 'router');
    if (texts.length === 0) return ok(`${routers}: a token can be made and deleted`);
    const detail = `${texts.length} of ${routers} failed: ${texts.join('; ')}`;
    return texts.length === addresses.length ? error(detail, MEANWHILE) : warn(detail, MEANWHILE);
  } finally {
    await router.close();
  }
}

/** Router, step and reason, for one line. */
export function textOf(
  { host, port }: RouterAddress,
  { step, error: { source, code, detail } }: SelfTestFailure,
): string {
  return [`${host}:${port}: ${step}`, `${source} ${code}`, ...(detail === undefined ? [] : [detail])].join(
    ', ',
  );
}

/** @returns the step that failed, undefined when all went well. Leaves nothing behind on the router. */
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

/** What a step says that failed. */
export function failureOf(
  step: SelfTestFailure['step'],
  { error }: Extract<RouterResult<unknown>, { ok: false }>,
): SelfTestFailure {
  return { step, error };
}

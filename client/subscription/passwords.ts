/** Passwords of messaging routers: they go into the routers' rows, sealed, and into no workflow. */
import type { Pool } from 'pg';
import type { KeyBox } from '../../api/key-box.ts';
import type { RouterAddress } from '../../api/subscription/router-address.ts';
import { ENSURE_AGENT } from '../../api/subscription/rows.ts';
import { routerPasswordContext } from '../../api/subscription/sealed-columns.ts';
import type { RouterKey } from '../../workflows/subscription/contract.ts';
import { OperationFailedError } from '../errors.ts';

interface PasswordResources {
  db: Pool;
  agentId: string;
  keyBox?: (() => KeyBox) | undefined;
}

/** An address as workflows may know it. */
export function withoutPassword({ host, port, keyHash }: RouterAddress): RouterKey {
  return { host, port, keyHash };
}

/**
 * Keeps the passwords that these addresses have; a router that is not known becomes so. Addresses without one change
 * nothing.
 *
 * @throws OperationFailedError when there is no key to seal one with.
 */
export async function keepPasswords(
  { db, agentId, keyBox }: PasswordResources,
  servers: readonly RouterAddress[],
): Promise<void> {
  const byRouter = new Map<string, RouterAddress & { basicAuth: string }>();
  for (const server of servers) {
    const { host, port, basicAuth } = server;
    if (basicAuth !== undefined) byRouter.set(`${host}:${port}`, { ...server, basicAuth });
  }
  if (byRouter.size === 0) return;
  const box = keyBox?.();
  if (!box) throw new OperationFailedError('there is no key to seal the password of a router with');
  await db.query(ENSURE_AGENT.text, [agentId]);
  for (const [name, { host, port, keyHash, basicAuth }] of byRouter) {
    const sealed = box.seal(Buffer.from(basicAuth, 'utf8'), routerPasswordContext(agentId, name));
    await db.query(KEEP_PASSWORD, [agentId, host, port, keyHash, sealed]);
  }
}

const KEEP_PASSWORD = `
  INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash, basic_auth)
  VALUES ($1, $2, $3, $4, $5)
  ON CONFLICT (agent_id, host, port) DO UPDATE
     SET basic_auth = excluded.basic_auth, updated_at = clock_timestamp()`;

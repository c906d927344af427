/** The users of deploy/redis/users.acl, for tests with a Redis that enforces their rules. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Redis } from 'ioredis';

const RULES = readFileSync(path.join(import.meta.dirname, '../../deploy/redis/users.acl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => line.split(' '));

export const USERS = RULES.map(([, name]) => name!);

export const passwordOf = (user: string): string =>
  RULES.find(([, name]) => name === user)!
    .find((word) => word.startsWith('>'))!
    .slice(1);

/** @param redis of somebody who may do everything. */
export async function makeUsers(redis: Redis): Promise<void> {
  for (const [, name, ...rule] of RULES) await redis.call('ACL', 'SETUSER', name!, 'reset', ...rule);
}

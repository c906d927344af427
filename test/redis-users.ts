/** The users of deploy/redis/users.acl, for tests with a Redis that enforces their rules. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Redis } from 'ioredis';

const RULES = readFileSync(path.join(import.meta.dirname, '../deploy/redis/users.acl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => line.split(' '));

export const USERS = RULES.map(([, name]) => name!);

/** All roles, in the order of the file. */
const ROLES = USERS.flatMap((name) => (name.startsWith('notify-') ? [name.slice('notify-'.length)] : []));

const ruleOf = (user: string): string[] => RULES.find(([, name]) => name === user)!.slice(2);

export const passwordOf = (user: string): string =>
  ruleOf(user)
    .find((word) => word.startsWith('>'))!
    .slice(1);

/** Each immediately, so that it may be done while they are in use. @param redis of a user with all rights. */
export async function makeUsers(redis: Redis): Promise<void> {
  for (const user of USERS) await redis.call('ACL', 'SETUSER', user, 'reset', ...ruleOf(user));
  const words = ROLES.flatMap((role) => ruleOf(`notify-${role}`));
  const rights = words.filter((word) => /^[+%]/.test(word));
  await redis.call('ACL', 'SETUSER', EVERY_ROLE, 'reset', 'on', `>${EVERY_ROLE}`, ...rights);
}

/** As an installation does whose streams have other names. */
export async function mayUse(redis: Redis, user: string, key: string): Promise<void> {
  await redis.call('ACL', 'SETUSER', user, `%RW~${key}`);
}

/** Has the keys and commands of all roles, for a process that works on several. */
const EVERY_ROLE = 'notify-all';

/** Variables of a program that has the rights of this user and no others. */
export const asUser = (user: string): Record<string, string> => ({
  NOTIFICATION_REDIS_USER: user,
  NOTIFICATION_REDIS_PASSWORD: user === EVERY_ROLE ? EVERY_ROLE : passwordOf(user),
});

/** @param roles of a service, separated by commas. */
export const asUserOf = (roles: string): Record<string, string> =>
  asUser(ROLES.includes(roles) ? `notify-${roles}` : EVERY_ROLE);

/** What users were refused so far, as Redis noted it; a service is refused nothing. */
export async function refusalsOf(redis: Redis): Promise<string[]> {
  const entries = (await redis.call('ACL', 'LOG', '128')) as (string | number)[][];
  return entries
    .map(
      (entry) => new Map(entry.flatMap((name, i) => (i % 2 === 0 ? [[name, entry[i + 1]!] as const] : []))),
    )
    .filter((entry) => entry.get('reason') !== 'auth')
    .map((entry) =>
      ['username', 'reason', 'context', 'object'].map((name) => String(entry.get(name))).join(' '),
    );
}

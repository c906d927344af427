import { Redis } from 'ioredis';
import './pooled-setup.ts';
import { refusalsOf } from './redis-users.ts';

export default async function globalTeardown(): Promise<void> {
  const servers = globalThis.serversOfThisRun;
  if (!servers) return;
  globalThis.serversOfThisRun = undefined;
  const [host = '', port] = servers.stack.redisAddr!.split(':');
  const redis = new Redis({ host, port: Number(port) });
  const refused = await refusalsOf(redis).finally(() => redis.disconnect());
  await globalThis.poolerOfThisRun?.stop();
  await servers.stop();
  if (refused.length > 0) {
    throw new Error(
      `deploy/redis/users.acl lacks what services needed in these tests:\n${refused.join('\n')}`,
    );
  }
}
